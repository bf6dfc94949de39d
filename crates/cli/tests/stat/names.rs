//! Names of tasks, shown on a terminal that watches. Any user of the machine chooses them, and root
//! reads the report.

use super::*;
use needless_testing::foreign::harmless;

/// Names as long as the kernel allows: a title, a clear screen, a line, a C1 control character.
const NAMES: [&std::ffi::CStr; 3] =
    [c"\x1b]0;t\x07\x1b[2J\n|x", c"\nforged \x1b[31m", c"\xc2\x9b2J\xe2\x80\xae\xff\r\tz"];

/// Threads with such names, while others are watched. On each CPU one of them runs and sleeps.
fn with_hostile_tasks(watch: impl FnOnce()) {
    let stop = Arc::new(AtomicBool::new(false));
    let busy = |at: usize| {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            let mut cpus = CpuSet::new();
            cpus.set(at % std::thread::available_parallelism().unwrap());
            let _ = sched_setaffinity(None, &cpus);
            rustix::thread::set_name(NAMES[at % NAMES.len()]).unwrap();
            while !stop.load(SeqCst) {
                // The end of a sleep is an interrupt. The drop is a flush that is sent to the other
                // CPUs.
                let page = vec![1_u8; 4 << 20];
                std::hint::black_box(&page);
                std::thread::sleep(Duration::from_micros(100));
            }
        })
    };
    let threads: Vec<JoinHandle<()>> = (0..6).map(busy).collect();
    watch();
    stop.store(true, SeqCst);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_tasks_name_steers_no_terminal() {
    with_hostile_tasks(|| {
        let mut shown = String::new();
        for options in [
            &["--victims", "0-1"][..],
            &["--every-interrupt", "-a"],
            &["-a", "--by-actor"],
            &["--color", "always", "-a"],
        ] {
            for format in ["text", "json", "openmetrics"] {
                let args = [options, &["--format", format, "--", "sleep", "0.4"]].concat();
                let output = stat(&args).output().unwrap();
                let printed = [output.stdout.as_slice(), &output.stderr].concat();
                shown += &harmless(&printed, &format!("{args:?}"));
            }
        }
        assert!(shown.contains("\\u{1b}]0;t\\u{7}"), "no such task was met: {shown}");
    });
}
