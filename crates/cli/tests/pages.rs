//! Pages in a browser: nothing is requested, nothing is wrong, nothing is wider than the window;
//! keys go from step to step. A page is shown in a frame as wide as a telephone and as wide as a
//! screen, and tells what it finds there.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const WIDTHS: [u32; 2] = [400, 1280];

/// Names of the browser, as distributions have it.
const BROWSERS: [&str; 3] = ["chromium", "chromium-headless-shell", "chromium-browser"];

/// Before the page's own scripts: what goes wrong is taken down.
const BEFORE: &str = "<script>
  window.wrong = [];
  addEventListener('error', (event) => wrong.push(String(event.message || event.target)), true);
  addEventListener('securitypolicyviolation', (event) => wrong.push('refused ' + event.violatedDirective));
  console.error = (...words) => wrong.push(words.join(' '));
</script>";

/// After them: what is seen. `moves` are keys; after each, what the page says of its step.
const AFTER: &str = "<script>
  addEventListener('load', () => {
    const said = () => (document.querySelector('.now') || {}).textContent || '';
    const shown = () => document.querySelectorAll('.stage .changed').length;
    const press = (key) => {
      document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
      return { key, said: said(), changed: shown(), hash: location.hash };
    };
    const start = said();
    const keys = ['ArrowRight', 'ArrowRight', 'ArrowLeft', 'End', 'Home'];
    const moves = document.querySelector('.stepper') ? keys.map(press) : [];
    const link = document.querySelector('tbody tr:nth-child(3) a[href^=\"#\"]');
    if (link && moves.length) link.click();
    setTimeout(() => {
      const data = JSON.parse(document.getElementById('data').textContent);
      const at = (place) => place.split('/').slice(1)
        .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'))
        .reduce((value, step) => value[step], data);
      const figures = [...document.querySelectorAll('[data-json]')];
      const other = figures.filter((cell) => {
        const value = at(cell.dataset.json);
        return cell.textContent !== (value === null ? '?' : String(value));
      });
      const wide = [...document.querySelectorAll('body *')].filter((one) =>
        !one.closest('.scroll, pre, svg, .skip') && one.getBoundingClientRect().right > innerWidth + 1);
      parent.postMessage(JSON.stringify({
        wrong, start, moves, linked: said(), figures: figures.length,
        other: other.map((cell) => cell.dataset.json),
        requests: performance.getEntriesByType('resource').map((entry) => entry.name),
        width: innerWidth, scrolls: document.documentElement.scrollWidth,
        wide: wide.map((one) => one.tagName + ' ' + one.className),
        images: document.images.length,
        heading: document.querySelector('h1').textContent,
      }), '*');
    }, 100);
  });
</script>";

fn needless(folder: &Path, args: &[&str], status: i32) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("needless"));
    let output = command.args(args).current_dir(folder).env("LC_ALL", "C.UTF-8").output().unwrap();
    assert_eq!(output.status.code(), Some(status), "{args:?}: {output:?}");
    assert!(output.stdout.is_empty(), "{args:?}: {output:?}");
}

fn browser() -> Option<&'static str> {
    let there = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    BROWSERS.iter().find(there).copied()
}

/// What a page tells of itself in a frame of this width.
fn seen(folder: &Path, name: &str, browser: &str, width: u32) -> Value {
    let page = fs::read_to_string(folder.join(name)).unwrap();
    let page = page.replacen("<head>", &format!("<head>{BEFORE}"), 1);
    let page = page.replacen("</body>", &format!("{AFTER}</body>"), 1);
    fs::write(folder.join("probed.html"), page).unwrap();
    let frame = format!(
        "<!DOCTYPE html><title>frame</title><pre id=told></pre>
         <script>addEventListener('message', (event) => {{ told.textContent = event.data; }});</script>
         <iframe src=probed.html width={width} height=800 style='border:0'></iframe>"
    );
    fs::write(folder.join("frame.html"), frame).unwrap();
    let profile = folder.join("profile");
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .args(["--virtual-time-budget=5000", "--window-size=1400,1000", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update"])
        .arg(format!("--user-data-dir={}", profile.to_str().unwrap()))
        .arg(format!("file://{}/frame.html", folder.to_str().unwrap()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = dom.split("<pre id=\"told\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let told = told.filter(|told| !told.is_empty());
    let told = told.unwrap_or_else(|| panic!("{name} tells nothing: {output:?}"));
    let told = told.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&told).unwrap()
}

/// A page is well in both widths; what it tells in the wider one.
fn well(folder: &TempDir, name: &str, browser: &str) -> Value {
    let mut last = Value::Null;
    for width in WIDTHS {
        let told = seen(folder.path(), name, browser, width);
        assert_eq!(told["width"], width, "{name}");
        for none in ["wrong", "requests", "other", "wide"] {
            assert_eq!(told[none], serde_json::json!([]), "{name} in {width}: {none}: {told}");
        }
        assert!(told["scrolls"].as_u64() <= Some(width.into()), "{name} in {width}: {told}");
        assert_eq!(told["images"], 0, "{name}: a name became an image: {told}");
        last = told;
    }
    last
}

/// Every kind of page that needs no real kernel.
#[test]
fn every_page_is_well_in_both_widths() {
    let Some(browser) = browser() else {
        needless_testing::skip!("`apt-get install chromium` for a browser")
    };
    let folder = tempfile::tempdir().unwrap();
    let html = |name: &'static str| ["--format", "html", "-o", name];
    let targets = ["-t", "model:5.10", "-t", "model:6.1", "-t", "model:6.12", "-t", "model:7.3"];
    let made = |args: &[&str], status| needless(folder.path(), args, status);
    made(&[&["compare", "cow-reuse"][..], &targets, &html("compare.html")].concat(), 0);
    made(&[&["run", "cow-reuse", "-t", "model:5.10"][..], &html("run.html")].concat(), 0);
    made(&[&["explain", "cow-reuse", "-t", "model:5.10"][..], &html("explain.html")].concat(), 0);
    made(&[&["check", "pageout-read"][..], &html("check.html")].concat(), 0);
    let mutant = "model:6.12,mutant=unmap-not-flushed";
    made(&[&["check", "pageout-read", "-t", mutant][..], &html("race.html")].concat(), 1);
    made(&[&["study", "cow-reuse", "-t", "model"][..], &html("study.html")].concat(), 0);
    for (name, figures) in [("compare.html", 40), ("run.html", 15), ("study.html", 0)] {
        let told = well(&folder, name, browser);
        assert!(told["figures"].as_u64() >= Some(figures), "{name}: {told}");
    }
    for name in ["explain.html", "check.html", "race.html"] {
        let told = well(&folder, name, browser);
        let said = |at: usize| told["moves"][at]["said"].as_str().unwrap().trim().to_owned();
        assert!(told["start"].as_str().unwrap().contains("Before step 1 of"), "{name}: {told}");
        assert!(said(0).starts_with("Step 1 of"), "{name}: {told}");
        assert!(said(1).starts_with("Step 2 of"), "{name}: {told}");
        assert_eq!(said(2), said(0), "{name}: back is where it was");
        assert!(said(4).starts_with("Before step 1 of"), "{name}: {told}");
        assert!(told["linked"].as_str().unwrap().trim().starts_with("Step 3 of"), "{name}: {told}");
        let last = said(3);
        let number = last.split_whitespace().nth(1).unwrap();
        assert!(last.contains(&format!("of {number}")), "{name}: {last}");
        if name == "race.html" {
            assert!(last.contains("VIOLATED P1"), "{last}");
        }
    }
}

#[test]
fn a_file_has_what_is_printed_and_its_readers_are_the_usual() {
    let folder = tempfile::tempdir().unwrap();
    let print = |args: &[&str]| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("needless"));
        let output = command.args(args).current_dir(&folder).env("LC_ALL", "C.UTF-8").output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    fs::write(folder.path().join("usual"), "").unwrap();
    let mode =
        |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
    for format in ["json", "html", "text"] {
        let args = ["run", "cow-reuse", "-t", "model:6.12", "--format", format];
        let printed = print(&args);
        assert_eq!(print(&[&args[..], &["-o", "file"]].concat()), "");
        let written = fs::read_to_string(folder.path().join("file")).unwrap();
        // A page names the command that made it, and a text what one would want next.
        let same = |text: &str| {
            let text = text.replace(" -o file", "");
            text.split("\nnext: ").next().unwrap().trim_end().to_owned()
        };
        assert_eq!(same(&written), same(&printed), "{format}");
        assert_eq!(mode("file"), mode("usual"));
    }
}

#[test]
fn where_no_page_can_be_written_nothing_is_run() {
    let folder = tempfile::tempdir().unwrap();
    for verb in ["run", "explain", "compare", "check"] {
        let args = [verb, "pageout-read", "-t", "model:6.12", "--format", "html", "-o", "no/page"];
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("needless"));
        let output = command.args(args).current_dir(&folder).output().unwrap();
        assert_ne!(output.status.code(), Some(0), "{verb}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("no/page"), "{verb}: {said}");
    }
}
