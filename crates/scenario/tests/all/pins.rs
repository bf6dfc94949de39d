//! Pins: the cost of a fork and of a reference for loads on each row, and what is refused.

use needless_model::event::EventKind;
use needless_model::kernels::KernelRow;
use needless_model::run::TargetRun;
use needless_model::sim::{self, SimOptions};
use needless_scenario::{Settings, Source, compile};

fn scenario(body: &str, child: &str) -> String {
    format!(
        "scenario \"pins\" {{
            machine {{ cpus 2 }}
            thread \"main\" cpu=0 {{
                map \"heap\" pages=2
                write \"heap\"
                rounds 1 warmup=0 {{ {body} }}
            }}
            process \"child\" cpu=1 {{ {child} }}
        }}"
    )
}

fn run(body: &str, row: &str) -> Result<TargetRun, String> {
    let text = scenario(body, "barrier \"b\"");
    let program = compile(&Source::new("pins", text), &Settings::default()).unwrap();
    let options = SimOptions { paranoid: true, ..SimOptions::default() };
    let run = sim::run(&program, &KernelRow::parse(row).unwrap(), &options);
    run.map_err(|error| error.to_string())
}

fn copies(body: &str, row: &str) -> usize {
    let run = run(body, row).unwrap();
    let events = run.rounds.iter().flat_map(|round| &round.events);
    events.filter(|event| matches!(event.kind, EventKind::Copy { .. })).count()
}

/// Source: mm/memory.c:copy_present_page (5.10 to 7.3); 5.8 does not have it.
#[test]
fn a_fork_copies_pinned_pages_and_no_others() {
    let pinned = "pin \"heap[0]\" as=\"p\" access=\"write\"\n fork \"child\"\n write \"heap[0]\"\n barrier \"b\"";
    let held = pinned.replace("access=\"write\"", "access=\"write\" by=\"get\"");
    for row in ["5.10", "5.15", "6.1", "6.12", "6.18", "7.3"] {
        assert_eq!(copies(pinned, row), 1, "{row}: at the fork");
        assert_eq!(
            copies(
                &format!("unpin \"q\"\n {pinned}").replacen(
                    "unpin",
                    "pin \"heap[1]\" as=\"q\" access=\"write\"\n unpin",
                    1
                ),
                row
            ),
            1,
            "{row}: let go"
        );
    }
    // The parent's store copies in all of these.
    for (body, row) in [(pinned, "5.8"), (&held, "5.10"), (&held, "7.3")] {
        assert_eq!(copies(body, row), 1, "{row}");
    }
    // Nobody stores: the one copy is the fork's, on rows where the fork copies.
    let idle = pinned.replace("write \"heap[0]\"", "");
    assert_eq!((copies(&idle, "5.8"), copies(&idle, "5.10"), copies(&idle, "6.12")), (0, 1, 1));
}

/// Source: mm/gup.c:should_force_cow_break (5.8), mm/internal.h:gup_must_unshare (6.1, 6.12, 7.3).
#[test]
fn a_shared_page_is_copied_before_it_is_pinned_for_loads() {
    let pins = |by: &str| {
        format!("fork \"child\"\n pin \"heap[0]\" as=\"p\" access=\"read\"{by}\n barrier \"b\"")
    };
    let (pin, get) = (pins(""), pins(" by=\"get\""));
    for (row, by_pin, by_get) in [
        ("5.8", 1, 1),
        ("5.10", 0, 0),
        ("5.15", 0, 0),
        ("6.1", 1, 0),
        ("6.12", 1, 0),
        ("7.3", 1, 0),
    ] {
        assert_eq!((copies(&pin, row), copies(&get, row)), (by_pin, by_get), "{row}");
    }
}

#[test]
fn pinned_pages_are_not_reclaimed() {
    let body = "pin \"heap[0]\" as=\"p\" access=\"read\"\n reclaim \"heap\"\n reclaim \"heap\"";
    let text =
        scenario(body, "barrier \"b\"").replace("cpus 2", "cpus 2; swap \"zram\" size=\"1M\"");
    for row in ["5.10", "6.12", "7.3"] {
        let program = compile(&Source::new("pins", text.clone()), &Settings::default()).unwrap();
        let options = SimOptions { paranoid: true, ..SimOptions::default() };
        let run = sim::run(&program, &KernelRow::parse(row).unwrap(), &options).unwrap();
        let pages = run.final_pages;
        let word = |page: &str| pages[page].split(' ').next().unwrap().to_owned();
        assert_eq!(
            (word("heap[0]"), word("heap[1]")),
            ("present".into(), "swapped".into()),
            "{row}"
        );
    }
}

#[test]
fn what_no_pin_can_do_is_an_error() {
    let refused = |body: &str, what: &str| {
        let error = run(body, "6.12").unwrap_err();
        assert!(error.contains(what), "{body}: {error}");
    };
    let pin = "pin \"heap[0]\" as=\"p\" access=\"read\"";
    refused(&format!("{pin}\n {pin}"), "EBUSY");
    refused(&format!("unpin \"p\"\n {pin}"), "EBADF");
    refused(&format!("{pin}\n unpin \"p\"\n dma \"p\" access=\"read\""), "EBADF");
    refused(&format!("munmap \"heap\"\n {pin}"), "EFAULT");
    refused(
        "mprotect \"heap\" prot=\"read\"\n pin \"heap[0]\" as=\"p\" access=\"write\"",
        "EFAULT",
    );
}

#[test]
fn misuse_is_pointed_at() {
    let pin = "pin \"heap[0]\" as=\"p\" access=\"read\"";
    let problems = |body: String, child: &str, what: &str| {
        let text = scenario(&body, child);
        let error = compile(&Source::new("pins", text), &Settings::default()).unwrap_err();
        let told = format!("{:?}", miette::Report::new(error));
        assert!(told.contains(what), "{told}");
    };
    problems("dma \"p\" access=\"read\"".into(), "", "nothing is pinned as `p`");
    problems(format!("{pin}; dma \"p\" access=\"write\""), "", "`p` is for loads only");
    problems(pin.into(), "unpin \"p\"", "`p` belongs to another process");
    problems("pin \"heap\" as=\"p\" access=\"read\"".into(), "", "a pin holds one page");
    problems(
        format!("{pin}; {}", pin.replace("read", "write")),
        "",
        "pinned differently elsewhere",
    );
    problems("pin \"heap[0]\" as=\"1\" access=\"read\"".into(), "", "cannot name a pin");
}

/// Pins run only in the model: real kernels are not asked.
#[test]
fn pins_are_the_models_only() {
    let text = scenario("pin \"heap[0]\" as=\"p\" access=\"read\"", "");
    let text = text.split("process").next().unwrap().to_owned() + "}";
    let program = compile(&Source::new("pins", text), &Settings::default()).unwrap();
    assert!(program.model_only().unwrap().starts_with("pin heap[0]"));
}
