//! Text fits the terminal that it is printed on.

use std::process::Command;

/// Whether a line may have any length: it is meant to be copied, or cannot be broken.
fn is_whole(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("next: ") || line.starts_with("schedule: ") || !line.contains(' ')
}

/// The first line that is too wide and may not be.
fn too_wide(text: &str, width: usize) -> Option<&str> {
    text.lines().find(|line| line.chars().count() > width && !is_whole(line))
}

fn text(args: &[&str], columns: Option<&str>) -> String {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("needless"));
    command.args(args).env_remove("COLUMNS").env("LC_ALL", "C.UTF-8");
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.envs(columns.map(|columns| ("COLUMNS", columns)));
    let output = command.output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(!text.is_empty(), "{args:?}");
    text
}

const MUTANT: &str = "model:6.12,mutant=freed-unflushed";

/// Commands that print tables, lists and sentences.
const PRINTED: [&[&str]; 14] = [
    &["compare", "cow-reuse", "-t", "model:5.10", "-t", "model:6.12"],
    &["compare", "a_swap_rw_64", "-t", "model:5.10", "-t", "model:6.12,reuse=page-count"],
    &["run", "cow-reuse", "-t", "model:5.10"],
    &["explain", "cow-reuse", "-t", "model:5.10"],
    &["explain", "z_munmap_sparse_64", "-t", "model:6.12"],
    &["explain", "z_mremap_16", "-t", "model:7.3"],
    &["check", "gather-early-free"],
    &["check", "gather-early-free", "-t", "model:6.12"],
    &["check", "gather-early-free", "-t", MUTANT],
    &["policies"],
    &["scenario", "list"],
    &["doctor"],
    &["run", "cow-reuse", "-t", "model:6.13"],
    &["run", "no-such-scenario", "-t", "model:6.12"],
];

#[test]
fn nothing_is_wider_than_the_terminal() {
    for args in PRINTED {
        for columns in ["60", "80", "120"] {
            let text = text(args, Some(columns));
            let wide = too_wide(&text, columns.parse().unwrap());
            assert_eq!(wide, None, "{args:?} in {columns}: {text}");
        }
    }
}

#[test]
fn width_is_used_where_there_is_some() {
    let lines = |args: &[&str], columns| text(args, Some(columns)).lines().count();
    for args in [PRINTED[0], PRINTED[3], PRINTED[8]] {
        assert!(lines(args, "80") > lines(args, "160"), "{args:?}");
    }
}

#[test]
fn without_a_terminal_the_width_is_the_same_everywhere() {
    for args in PRINTED {
        assert_eq!(too_wide(&text(args, None), 100), None, "{args:?}");
    }
    for columns in ["0", "", "x", "-1"] {
        assert_eq!(text(PRINTED[0], None), text(PRINTED[0], Some(columns)), "{columns}");
    }
}

/// A table in parts has all its figures, and each part has the targets.
#[test]
fn a_table_that_is_too_wide_stands_in_parts() {
    let every_counter = [PRINTED[0], &["-v"]].concat();
    let wide = text(&every_counter, Some("160"));
    let narrow = text(&every_counter, Some("60"));
    let rows = |text: &str| text.lines().filter(|line| line.starts_with("model:5.10 ")).count();
    assert_eq!((rows(&wide), rows(&narrow)), (1, 2), "{narrow}");
    let figures = |text: &str| {
        let rows = text.lines().filter_map(|line| line.strip_prefix("model:5.10 "));
        rows.flat_map(str::split_whitespace).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(figures(&wide), figures(&narrow));
}

#[test]
fn help_fits_80_columns() {
    let verbs = ["run", "compare", "explain", "agree", "check", "stat", "doctor", "kernels"];
    let more = ["scenario", "policies", "completions", "man"];
    let below = [["kernels", "list"], ["kernels", "fetch"], ["scenario", "random"]];
    let mut asked = vec![vec!["help"]];
    asked.extend(verbs.iter().chain(&more).map(|verb| vec!["help", verb]));
    asked.extend(below.iter().map(|[verb, lower]| vec!["help", verb, lower]));
    for args in asked {
        let text = text(&args, Some("80"));
        assert!(text.starts_with("Examples:\n"), "{args:?}: {text}");
        let mut examples = text.lines().skip(1).take_while(|line| !line.is_empty());
        let whole = |line: &str| line.starts_with("  needless ") || line.starts_with("          ");
        assert!(examples.all(whole), "{args:?}: {text}");
        assert_eq!(too_wide(&text, 80), None, "{args:?}: {text}");
    }
}

/// On a real terminal its own width counts, whatever COLUMNS says.
#[test]
fn the_terminal_says_how_wide_it_is() {
    let needless = assert_cmd::cargo::cargo_bin!("needless").to_str().unwrap();
    for columns in [80, 132] {
        let script =
            format!("stty rows 24 cols {columns}; {needless} explain cow-reuse -t model:5.10");
        let output = Command::new("script")
            .args(["-q", "-e", "-c", &script, "/dev/null"])
            .env("COLUMNS", "70")
            .env("NO_COLOR", "1")
            .env("LC_ALL", "C.UTF-8")
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap().replace('\r', "");
        assert!(text.contains("flush_tlb_batched_pending"), "{text}");
        assert!(!text.contains('\u{1b}'), "NO_COLOR: {text}");
        let widest = text.lines().filter(|line| !is_whole(line)).map(|l| l.chars().count()).max();
        let widest = widest.unwrap();
        assert!((columns - 20..=columns).contains(&widest), "{widest} of {columns}: {text}");
    }
}
