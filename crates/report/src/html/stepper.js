"use strict";
// Shows one step of a walk at a time: crates/report/src/html/stepper.rs writes the data and the table of all steps.
// Everything is set as text, never as markup.
(() => {
  const CPU_PARTS = [["task", "Runs"], ["tlb", "TLB may hold"], ["pending", "Pending flushes"]];
  const PLACE_PARTS = [["page", "Page table"], ["frame", "Frames"]];

  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  const head = (row, text, scope) => {
    const cell = element("th", text);
    cell.scope = scope;
    row.append(cell);
    return cell;
  };

  // The cell that shows a place.
  const cellOf = (row, shown, number) => {
    const cell = element("td");
    row.append(cell);
    shown[number] = cell;
  };

  const make = (box) => {
    const data = JSON.parse(document.getElementById(box.dataset.walk).textContent);
    const stage = box.querySelector(".stage");
    const now = box.querySelector(".now");
    const range = box.querySelector("input");
    const number = Number(box.dataset.number);
    const first = data.first - 1;
    const last = first + data.steps.length;
    const values = data.start.slice();
    const before = data.steps.map(() => []);
    const shown = [];
    const ownRow = [];
    const cpuHeads = [];
    let at = first;
    let changed = [];

    const anchor = (step) => (number === 0 ? String(step) : "w" + number + "-" + step);

    const places = (part, cpu) =>
      data.places.map((place, index) => [place, index])
        .filter(([place]) => place.part === part && (cpu === undefined || place.cpu === cpu));

    const build = () => {
      const table = element("table");
      table.append(element("caption", "CPUs"));
      const top = table.createTHead().insertRow();
      head(top, "", "col");
      for (let cpu = 0; cpu < data.cpus; cpu++) cpuHeads.push(head(top, "CPU " + cpu, "col"));
      const body = table.createTBody();
      for (const [part, title] of CPU_PARTS) {
        const row = body.insertRow();
        head(row, title, "row");
        for (let cpu = 0; cpu < data.cpus; cpu++) {
          const here = places(part, cpu);
          if (here.length > 0) cellOf(row, shown, here[0][1]);
          else row.append(element("td"));
        }
      }
      stage.append(table);
      for (const [part, title] of PLACE_PARTS) {
        const rows = places(part);
        if (rows.length === 0) continue;
        const list = element("table");
        list.append(element("caption", title));
        const lines = list.createTBody();
        for (const [place, index] of rows) {
          const row = lines.insertRow();
          head(row, place.name, "row");
          cellOf(row, shown, index);
          ownRow[index] = row;
        }
        stage.append(list);
      }
    };

    const fill = (index, old) => {
      const cell = shown[index];
      if (!cell) return;
      // A page or a frame of which nothing is known yet has no row.
      if (ownRow[index]) ownRow[index].hidden = values[index] === "";
      cell.replaceChildren(...values[index].split("\n").map((line) => element("p", line || "–")));
      cell.className = old === undefined ? "" : "changed";
      if (old) cell.append(element("span", old.replaceAll("\n", "; "), "old"));
    };

    const tell = () => {
      const step = data.steps[at - data.first];
      const lines = [];
      if (!step) {
        lines.push(element("p", "Before step " + (first + 1) + " of " + last + "."));
      } else {
        const line = element("p");
        const link = element("a", "Step " + at);
        link.href = "#" + anchor(at);
        const who = step.thread ? ", " + step.thread : "";
        line.append(link, " of " + last + ": CPU " + step.cpu + who + ": ", element("b", step.what));
        lines.push(line);
        if (step.operation) lines.push(element("p", "Operation: " + step.operation));
        if (step.function) {
          const file = step.file ? " (" + step.file + ")" : "";
          lines.push(element("p", "Kernel function: " + step.function + file));
        }
        if (step.note) lines.push(element("p", step.note, step.mark));
      }
      now.replaceChildren(...lines);
      cpuHeads.forEach((cell, cpu) => {
        cell.className = step && step.cpu === cpu ? "acts" : "";
      });
      range.value = String(at);
      range.setAttribute("aria-valuetext", "step " + at + " of " + last);
      for (const row of document.querySelectorAll("tr.current")) row.classList.remove("current");
      const row = document.getElementById(anchor(at));
      if (row) row.classList.add("current");
    };

    // Goes to a step; everything between is done, or undone.
    const go = (to, remember) => {
      const goal = Math.min(Math.max(to, first), last);
      const touched = new Set(changed);
      while (at < goal) {
        const index = at - first;
        before[index] = data.steps[index].set.map(([place]) => [place, values[place]]);
        for (const [place, value] of data.steps[index].set) { values[place] = value; touched.add(place); }
        at++;
      }
      while (at > goal) {
        at--;
        for (const [place, value] of before[at - first]) { values[place] = value; touched.add(place); }
      }
      const old = new Map(at > first ? before[at - first - 1] : []);
      changed = [...old.keys()];
      changed.forEach((place) => touched.add(place));
      touched.forEach((place) => fill(place, old.get(place)));
      tell();
      if (remember) {
        try {
          history.replaceState(null, "", at > first ? "#" + anchor(at) : "#" + box.id);
        } catch (refused) { /* A browser may forbid it for files: the link beside the step is there. */ }
      }
    };

    const moves = {
      first: () => go(first, true), back: () => go(at - 1, true),
      on: () => go(at + 1, true), last: () => go(last, true),
    };
    build();
    data.places.forEach((place, index) => fill(index));
    tell();
    for (const button of box.querySelectorAll("button")) {
      button.addEventListener("click", () => moves[button.dataset.go]());
    }
    range.addEventListener("input", () => go(Number(range.value), true));
    return { box, go, moves, number };
  };

  const walks = [...document.querySelectorAll(".stepper")].map(make);
  let active = walks[0];
  for (const walk of walks) {
    walk.box.addEventListener("focusin", () => { active = walk; });
    walk.box.addEventListener("pointerdown", () => { active = walk; });
  }

  const KEYS = { ArrowRight: "on", ArrowLeft: "back", Home: "first", End: "last" };
  document.addEventListener("keydown", (event) => {
    const move = KEYS[event.key];
    if (!active || !move || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    // A region that can be scrolled, and the slider, have these keys for themselves.
    if (event.target.closest && event.target.closest(".scroll, pre, input")) return;
    event.preventDefault();
    active.moves[move]();
  });

  // `#12` is a step of the first walk, `#w1-12` one of the second.
  const follow = () => {
    const found = /^#(?:w(\d+)-)?(\d+)$/.exec(location.hash);
    const walk = found && walks[Number(found[1] || 0)];
    if (!walk) return;
    active = walk;
    walk.go(Number(found[2]), false);
    walk.box.scrollIntoView();
    walk.box.focus({ preventScroll: true });
  };
  window.addEventListener("hashchange", follow);
  follow();
})();
