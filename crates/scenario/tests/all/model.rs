//! Properties of the model over the built-in scenarios.

use needless_model::account::Account;
use needless_model::addr::{PageRange, ProcessId};
use needless_model::call::{Call, Extent};
use needless_model::counters::Counter;
use needless_model::event::{Event, EventKind, FlushReason};
use needless_model::kernel::{Errno, call};
use needless_model::kernels::KernelRow;
use needless_model::machine::world::mm_of;
use needless_model::program::{Advice, Backing, Mthp, MthpMode, Program, Prot};
use needless_model::sim::{self, SimEnv, SimError, SimOptions, alike_from, end_state};
use needless_model::wait::Ended;
use needless_scenario::{Settings, Source, builtin, compile, load};

fn program(name: &str, settings: &[(&str, &str)]) -> Program {
    let settings: Settings = settings.iter().copied().collect();
    compile(&load(name).expect("a built-in"), &settings).expect("it compiles")
}

fn text_program(body: &str) -> Program {
    let text = format!(
        "scenario \"test\" {{\n machine {{ cpus 2; swap \"zram\" size=\"1M\" }}\n{body}\n}}"
    );
    compile(&Source::new("test", text), &Settings::default()).expect("it compiles")
}

fn row(name: &str) -> KernelRow {
    KernelRow::parse(name).expect("a row")
}

#[test]
fn the_same_input_gives_the_same_events_byte_for_byte() {
    for name in builtin::names() {
        let program = program(name, &[("rounds", "5")]);
        for row in KernelRow::all() {
            let options = SimOptions { pte_events: true, ..SimOptions::default() };
            let bytes = || {
                let run = sim::run(&program, &row, &options).map_err(|error| error.to_string());
                format!("{run:?}").into_bytes()
            };
            assert_eq!(bytes(), bytes(), "{name} on {}", row.name);
        }
    }
}

/// Shootdowns, copies, needless shootdowns, needless copies and needless faults of a round.
#[test]
fn cow_reuse_gives_the_published_figures() {
    let expected = [
        ("5.8", [3, 0, 2, 0, 1]),
        ("5.10", [4, 1, 2, 1, 1]),
        ("5.15", [4, 1, 2, 1, 1]),
        ("6.1", [3, 0, 2, 0, 1]),
        ("6.12", [2, 0, 1, 0, 0]),
        ("6.18", [2, 0, 1, 0, 0]),
        ("7.3", [2, 0, 1, 0, 0]),
    ];
    let program = program("cow-reuse", &[]);
    let counters = [
        Counter::Shootdowns,
        Counter::Copies,
        Counter::NeedlessShootdowns,
        Counter::NeedlessCopies,
        Counter::NeedlessFaults,
    ];
    for (name, figures) in expected {
        let run = sim::run(&program, &row(name), &SimOptions::default()).expect("it runs");
        let account = Account::of(&program, &run);
        for (counter, figure) in counters.into_iter().zip(figures) {
            let spread = account.spread(counter).expect("the model knows");
            assert!(spread.is_constant(), "{name}: {counter:?} differs between rounds");
            assert_eq!(account.typical(counter), Some(figure), "{name}: {counter:?}");
        }
    }
}

/// Larger numbers of pages cost what booted kernels showed (`needless study cow-reuse --part
/// shootdowns`): 5.10 copies all but every eighth page.
#[test]
fn cow_reuse_scales_with_pages_as_measured() {
    for (pages, old, middle, new) in [(2, 6, 4, 3), (8, 17, 10, 9), (64, 122, 66, 65)] {
        let program = program("cow-reuse", &[("pages", &pages.to_string())]);
        for (name, shootdowns) in [("5.10", old), ("6.1", middle), ("7.3", new)] {
            let run = sim::run(&program, &row(name), &SimOptions::default()).expect("it runs");
            let account = Account::of(&program, &run);
            assert_eq!(account.typical(Counter::Shootdowns), Some(shootdowns), "{name}, {pages}");
        }
    }
}

#[test]
fn threads_take_turns_at_barriers() {
    let program = text_program(
        "thread \"main\" cpu=0 { map \"heap\" pages=2\n barrier \"a\"\n rounds 1 warmup=0 { barrier \"b\"\n read \"heap[1]\" } }
         thread \"other\" cpu=1 { barrier \"a\"\n write \"heap[0]\"\n barrier \"b\" }",
    );
    let run = sim::run(&program, &row("6.12"), &SimOptions::default()).expect("it runs");
    let faults: Vec<u16> = run.rounds[0]
        .events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Fault { .. }))
        .filter_map(|event| event.thread.map(|thread| thread.0))
        .collect();
    assert_eq!(faults, [1, 0], "the other thread's turn comes while the first one waits");
}

#[test]
fn the_models_own_operations_run() {
    let program = text_program(
        "thread \"main\" cpu=0 { map \"heap\" pages=2\n write \"heap\"\n
           rounds 2 warmup=0 { barrier \"a\"\n barrier \"b\"\n read \"heap\"\n switch 3 } }
         kernel-thread \"kswapd\" cpu=1 { repeat 2 { barrier \"a\"\n repeat 3 { reclaim \"heap\" }\n barrier \"b\" } }",
    );
    for row in KernelRow::all() {
        let options = SimOptions { paranoid: true, ..SimOptions::default() };
        let run = sim::run(&program, &row, &options).expect("it runs");
        let events = || run.rounds.iter().flat_map(|round| &round.events);
        let out = |event: &&Event| matches!(event.kind, EventKind::PageOut { .. });
        let switches = |cpu: usize| {
            let switch = |event: &&Event| {
                event.cpu.index() == cpu
                    && matches!(
                        event.kind,
                        EventKind::Flush { reason: FlushReason::TaskSwitch, .. }
                    )
            };
            events().filter(switch).count()
        };
        assert!(events().any(|e| out(&e)), "{}: kswapd writes pages", row.name);
        assert!(switches(0) >= 2 * 4, "{}: others run", row.name);
        assert_eq!(switches(1), 0, "{}: kswapd loads no address space", row.name);
    }
    let many = "thread \"main\" cpu=0 { map \"heap\" pages=1\n
                rounds 1 { repeat 9 as=\"n\" { repeat 9 as=\"m\" { switch \"n*m\" } } } }";
    let error = sim::run(&text_program(many), &row("6.12"), &SimOptions::default());
    assert!(matches!(error, Err(SimError::Expr { .. })), "{error:?}");
}

/// A moved page takes the sleeper's CPU out of the address space once, before the first round that
/// counts. If the runner began again, the sleeper would fall asleep anew and nothing would move.
#[test]
fn rounds_that_a_repetition_would_change_are_not_alike() {
    let scenario = |sleeper: &str| {
        text_program(&format!(
            r#"thread "main" cpu=0 {{
                map "heap" pages=8 table="shared"
                map "away" pages=1
                read "away"
                rounds 2 warmup=1 {{
                    mremap "away" to="heap"
                    write "heap"
                    madvise "heap" advice="dontneed"
                    munmap "heap"
                    map "heap"
                    map "away"
                }}
            }}
            {sleeper}"#
        ))
    };
    let (asleep, alone) = (scenario(r#"thread "sleeper" cpu=1 { sleep }"#), scenario(""));
    for name in ["6.1", "6.12", "7.3"] {
        assert_eq!(alike_from(&asleep, &row(name)), u32::MAX, "{name}");
        assert_eq!(alike_from(&alone, &row(name)), 0, "{name}");
    }
}

/// A child's address space gets another identifier each round, on x86 one of six for each CPU.
#[test]
fn rounds_that_fork_are_alike() {
    for name in ["fork-touch", "fork-save", "fork-exec", "d_fork_childwrite", "d_fork_swap_read"] {
        for kernel in ["5.10", "6.1", "6.12", "7.3"] {
            let from = alike_from(&program(name, &[]), &row(kernel));
            assert_eq!(from, 0, "{name} on {kernel}");
        }
    }
}

/// Many short operations do not make a round long, so the rounds after it are looked at, too.
#[test]
fn a_first_touch_in_random_order_is_not_alike() {
    let touches = text_program(
        r#"thread "main" cpu=0 {
            map "heap" pages=64
            rounds 1 warmup=0 {
                for-each "p" in="heap" {
                    touch "heap[p]" access="read" order="random" seed=9 count=12
                }
            }
        }"#,
    );
    assert_eq!(alike_from(&touches, &row("6.12")), 1);
}

#[test]
fn what_goes_wrong_is_said() {
    let fail = |body: &str, kernel: &str| {
        let program = text_program(&format!("thread \"main\" cpu=0 {{ {body} }}"));
        sim::run(&program, &row(kernel), &SimOptions::default()).expect_err("it must fail")
    };
    let signal = fail("map \"heap\" pages=1 prot=\"read\"\n rounds 1 { write \"heap\" }", "6.1");
    assert!(matches!(&signal, SimError::Signal { page, .. } if page == "heap[0]"), "{signal}");
    let populate = "map \"heap\" pages=1\n rounds 1 { madvise \"heap\" advice=\"populate-read\" }";
    assert!(matches!(fail(populate, "5.10"), SimError::Call { .. }));
    let pageout = "map \"heap\" pages=1\n write \"heap\"\n rounds 2 warmup=0 { madvise \"heap\" advice=\"pageout\"\n read \"heap\" }";
    let program = text_program(&format!(
        "thread \"main\" cpu=0 {{ {pageout} }}\n thread \"spinner\" cpu=1 {{ spin }}"
    ));
    let mutant = sim::run(&program, &row("6.12,mutant=unmap-not-flushed"), &SimOptions::default());
    assert!(matches!(mutant, Err(SimError::StaleUse { .. })), "{mutant:?}");
}

/// What kernels do when a call fails: the pages before a hole are changed, and those after it are
/// not.
#[test]
fn calls_that_kernels_refuse_are_refused() {
    let program = text_program(
        "thread \"main\" cpu=0 { map \"heap\" pages=4\n write \"heap\"\n munmap \"heap[1]\"\n rounds 1 { } }",
    );
    let mm = mm_of(ProcessId::FIRST);
    let heap = program.areas[0].range;
    let part = |first, pages| PageRange::new(heap.start.add(first), pages);
    for kernel in ["5.10", "6.1", "6.12", "6.18", "7.3"] {
        let row = row(kernel);
        let options = SimOptions { paranoid: true, ..SimOptions::default() };
        let mut world = end_state(&program, &row, row.arch(), &options).unwrap();
        let mut ask = |asked| call(&mut SimEnv::of(&mut world, &program, 0, 0), mm, asked);
        let to = Extent { pages: part(3, 2), backing: Backing::Anonymous };
        assert_eq!(ask(Call::Remap { pages: part(2, 2), to }), Err(Errno::Einval), "{kernel}");
        for advice in [Advice::DontNeed, Advice::Free, Advice::Cold] {
            assert_eq!(ask(Call::Advise { pages: heap, advice }), Err(Errno::Enomem), "{kernel}");
            let whole = part(2, 2);
            assert_eq!(ask(Call::Advise { pages: whole, advice }), Ok(Ended::Done), "{kernel}");
        }
        let denied = ask(Call::Protect { pages: heap, prot: Prot::Read });
        assert_eq!(denied, Err(Errno::Enomem), "{kernel}");
        let prot = |page| world.mms[mm.index()].vma(heap.start.add(page)).map(|vma| vma.prot);
        let prots = [0, 1, 2, 3].map(prot);
        let rest = Some(Prot::ReadWrite);
        assert_eq!(prots, [Some(Prot::Read), None, rest, rest], "{kernel}");
    }
}

/// A kernel may make a page writable without a fault of the CPU that read it before. Then a
/// processor may fault at the next store. It cannot if that store itself was the fault, or if a
/// flush came between.
#[test]
fn stores_that_a_processor_may_fault_on_are_marked() {
    let marks = |body: &str| {
        let program = text_program(&format!(
            "thread \"main\" cpu=0 {{
                map \"heap\" pages=2
                write \"heap\"
                fork \"child\"
                wait \"child\"
                rounds 1 warmup=0 {{ {body} }}
            }}
            process \"child\" cpu=1 {{
            }}"
        ));
        let options = SimOptions { choices: true, ..SimOptions::default() };
        let run = sim::run(&program, &row("6.12"), &options).expect("it runs");
        let marked = |event: &&Event| matches!(event.kind, EventKind::MayFault { .. });
        run.rounds[0].events.iter().filter(marked).count()
    };
    let granted = "madvise \"heap[0]\" advice=\"populate-write\"\n";
    assert_eq!(marks(&format!("read \"heap[0]\"\n{granted} write \"heap[0]\"")), 1);
    assert_eq!(marks(&format!("{granted} write \"heap[0]\"\n write \"heap[0]\"")), 1, "read ahead");
    assert_eq!(marks("read \"heap[0]\"\n write \"heap[0]\""), 0, "the store faults");
    assert_eq!(marks(&format!("{granted} write \"heap[1]\"")), 0, "another page");
    let flushed = "mprotect \"heap\" prot=\"read\"\n mprotect \"heap\" prot=\"read-write\"\n";
    assert_eq!(marks(&format!("{granted} {flushed} write \"heap[0]\"")), 0, "flushed");
}

/// A store waits for userfaultfd's answer. Meanwhile the processor may read the entry again for
/// another thread on that CPU, and then fault once more when the store is repeated. If the handler
/// has a CPU of its own, no thread makes it do that.
#[test]
fn a_store_that_waited_on_a_shared_cpu_is_marked() {
    let marks = |handler: u16| {
        let program = text_program(&format!(
            "thread \"main\" cpu=0 {{
                map \"heap\" pages=1 backing=\"shared\"
                write \"heap\"
                uffdio_register \"heap\" mode=\"wp\"
                rounds 1 warmup=0 {{
                    uffdio_writeprotect \"heap\" mode=\"protect\"
                    write \"heap\"
                }}
            }}
            thread \"handler\" cpu={handler} {{ uffd-serve by=\"unprotect\" }}"
        ));
        let options = SimOptions { choices: true, ..SimOptions::default() };
        let run = sim::run(&program, &row("6.18"), &options).expect("it runs");
        let marked = |event: &&Event| matches!(event.kind, EventKind::MayFault { .. });
        run.rounds[0].events.iter().filter(marked).count()
    };
    assert_eq!(marks(0), 1, "the handler's CPU");
    assert_eq!(marks(1), 0, "another CPU");
}

/// A fork makes a huge page read-only. The store that makes it writable again faults once. It may
/// fault at each other page that the processor holds in pieces. A flush of any address of the huge
/// page drops all pieces.
#[test]
fn stores_to_a_huge_page_held_in_pieces_are_marked() {
    let marks = |kernel: &str, between: &str, body: &str| {
        let program = text_program(&format!(
            "thread \"main\" cpu=0 {{
                map \"heap\" pages=512 align=\"2M\"
                madvise \"heap\" advice=\"hugepage\"
                rounds 1 warmup=0 {{
                    write \"heap\"
                    fork \"child\"
                    wait \"child\"
                    {between}
                    {body}
                }}
            }}
            process \"child\" cpu=1 {{
            }}"
        ));
        let options = SimOptions { choices: true, ..SimOptions::default() };
        let run = sim::run(&program, &row(kernel), &options).expect("it runs");
        let marked = |event: &&Event| matches!(event.kind, EventKind::MayFault { .. });
        run.rounds[0].events.iter().filter(marked).count()
    };
    let pieces = "6.12,huge-tlb=pieces";
    assert_eq!(marks("6.12", "", "write \"heap\""), 0, "whole: the fault drops it");
    assert_eq!(marks(pieces, "", "write \"heap\""), 511);
    assert_eq!(
        marks(pieces, "", "write \"heap[3]\"\n write \"heap[0..8]\"\n write \"heap[0..8]\""),
        7
    );
    let flush = "mprotect \"heap\" prot=\"read\"\n mprotect \"heap\" prot=\"read-write\"";
    assert_eq!(
        marks(pieces, "", &format!("write \"heap[3]\"\n {flush}\n write \"heap\"")),
        0,
        "flushed"
    );
    let populate = "madvise \"heap[0]\" advice=\"populate-write\"";
    assert_eq!(marks("6.12", populate, "write \"heap[5]\"\n write \"heap[6]\""), 1, "whole");
    assert_eq!(marks(pieces, populate, "write \"heap[5]\"\n write \"heap[6]\""), 2, "in pieces");
}

/// Large folios of private memory: which kernels have them, and what the model does not have
/// together with them.
#[test]
fn large_folios_that_are_not_to_be_had_are_refused() {
    let refused = |machine: &str, body: &str, kernel: &str| {
        let text = format!(
            "scenario \"test\" {{ machine {{ cpus 2; mthp \"64KiB\" \"always\"; {machine} }}
             thread \"main\" cpu=0 {{ map \"heap\" pages=64; rounds 1 {{ {body} }} }} }}"
        );
        let program =
            compile(&Source::new("test", text), &Settings::default()).expect("it compiles");
        sim::run(&program, &row(kernel), &SimOptions::default())
            .err()
            .map(|error| error.to_string())
    };
    let write = "write \"heap\"";
    assert_eq!(refused("", write, "6.12"), None);
    for (machine, body, kernel, why) in [
        ("", write, "6.1", "6.1 has no large folios smaller than a huge page"),
        ("", write, "6.12/arm64", "in the model, which has them on x86-64 only"),
        ("swap \"zram\" size=\"1M\"", write, "6.12", "no swap space with large folios"),
        ("", "mlock \"heap\"", "6.12", "no mlock with large folios"),
    ] {
        let told = refused(machine, body, kernel).expect(why);
        assert!(told.contains(why), "{told}");
    }
}

#[test]
fn sizes_of_large_folios_are_said_once_and_exist() {
    let compiled = |machine: &str| {
        let text = format!(
            "scenario \"test\" {{ machine {{ {machine} }}\nthread \"main\" cpu=0 {{ map \"heap\" pages=1\nrounds 1 {{ read \"heap\" }} }} }}"
        );
        compile(&Source::new("test", text), &Settings::default())
            .map_err(|problems| format!("{:?}", miette::Report::new(problems)))
    };
    let two = "mthp \"64KiB\" \"always\"; mthp \"16KiB\" \"never\"";
    let program = compiled(two).expect("it compiles");
    let on = Mthp::default().with("64KiB", MthpMode::Always);
    assert_eq!(program.machine.mthp, on);
    for (machine, why) in [
        ("mthp \"64KiB\" \"never\"; mthp \"64KiB\" \"always\"", "is given twice"),
        ("mthp \"8KiB\" \"always\"", "size of a large folio"),
        ("mthp \"64KiB\" \"on\"", "mode"),
    ] {
        let told = compiled(machine).expect_err(why);
        assert!(told.contains(why), "{told}");
    }
}
