//! Checks what this machine can show, what prevents the rest, and what the remedies are.

use crate::child::Runner;
use crate::error::PERFMON_REMEDY;
use crate::leftovers;
use crate::machine::Machine;
use needless_model::foreign;
use needless_runner::environment::{environment, release, setting};
use needless_runner::journal::{Made, Standing};
use needless_runner::look::{Unseen, is_there, look};
use needless_runner::tracefs::{self, Tracepoint};
use rustix::thread::CapabilitySet;
use std::collections::BTreeMap;
use std::path::Path;

/// The result of a check.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Everything is as it should be.
    Ok,
    /// Something works less well.
    Warning,
    /// Something does not work.
    Missing,
}

/// A check and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The name of the thing that was checked.
    pub name: &'static str,
    /// The result.
    pub state: State,
    /// The details, in words.
    pub detail: String,
    /// The remedy, if there has to be one.
    pub remedy: Option<String>,
}

impl Check {
    fn ok(name: &'static str, detail: impl Into<String>) -> Check {
        Check { name, state: State::Ok, detail: detail.into(), remedy: None }
    }

    fn not(name: &'static str, state: State, detail: impl Into<String>, remedy: &str) -> Check {
        let remedy = (!remedy.is_empty()).then(|| remedy.to_owned());
        Check { name, state, detail: detail.into(), remedy }
    }

    /// The check, or one whose result is unknown because the file cannot be seen.
    fn of(name: &'static str, seen: Result<Check, Unseen>) -> Check {
        seen.unwrap_or_else(|unseen| {
            let detail = format!("unknown: {unseen}");
            Check::not(name, State::Warning, detail, unseen.remedy())
        })
    }
}

/// The value of a setting; `None` if this kernel does not have it.
fn seen(path: &str) -> Result<Option<String>, Unseen> {
    Ok(if is_there(path)? { setting(path) } else { None })
}

/// Makes all checks. tracefs is mounted for their duration if that is possible. Nothing else is
/// changed.
pub fn doctor() -> Vec<Check> {
    let environment = environment();
    // This comes before tracefs is mounted for the other checks, because that mount is written down
    // as well.
    let left_behind = left_behind(&leftovers::standing());
    let tracefs = tracefs_mounted();
    let _mounted = match tracefs.state {
        State::Ok => Runner::find().and_then(|runner| Machine::with_tracefs(&runner)).ok(),
        _ => None,
    };
    let mut checks = vec![
        Check::ok("kernel", release()),
        privilege(),
        paranoia(),
        tracefs,
        tracepoint("fault events", "exceptions", "page_fault_user"),
        tracepoint("flush events", "tlb", "tlb_flush"),
        rings(),
        Check::of("zram", zram()),
        Check::of("zswap", zswap()),
        Check::of("swap in use", swap_in_use(&environment)),
        optional("transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled"),
        cpus(),
        optional("multi-generational LRU", "/sys/kernel/mm/lru_gen/enabled"),
        Check::of("NUMA balancing", numa_balancing()),
        Check::of("nr_tlb_* counters", tlb_counters()),
        Check::of("userfaultfd", userfaultfd()),
        soft_dirty(&environment),
        Check::of("hardware counters", hardware_counters()),
        clock(),
        virtualization(&environment),
        left_behind,
    ];
    checks.push(what_works(&checks));
    checks
}

/// Whether this process has the capability in the machine's own user namespace. In any other
/// namespace the capability holds only for what belongs to that namespace. Nothing that is checked
/// here belongs to one.
fn has_capability(wanted: CapabilitySet) -> bool {
    let has = rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(wanted));
    has && !in_user_namespace()
}

/// Whether this process is in a user namespace other than the machine's.
///
/// Source: include/linux/proc_ns.h: PROC_USER_INIT_INO (5.10 to 7.3); user_namespaces(7).
fn in_user_namespace() -> bool {
    std::fs::read_link("/proc/self/ns/user")
        .is_ok_and(|space| space.as_os_str() != "user:[4026531837]")
}

fn privilege() -> Check {
    let name = "privilege";
    if in_user_namespace() {
        let detail = "a user namespace of its own: its capabilities do not count for events, swap space and settings";
        let remedy = "run outside it (`unshare -U`, a container without the host's root), as root";
        return Check::not(name, State::Missing, detail, remedy);
    }
    if has_capability(CapabilitySet::SYS_ADMIN) {
        return Check::ok(name, "CAP_SYS_ADMIN: events, swap space and settings");
    }
    let root = "run as root for scenarios that swap, set huge pages or have files on ext4";
    if has_capability(CapabilitySet::PERFMON) {
        let detail = "CAP_PERFMON: events, but no swap space and no settings";
        return Check::not(name, State::Warning, detail, root);
    }
    if everybody_may() {
        let detail =
            "none needed for events (perf_event_paranoid), but no swap space and no settings";
        return Check::not(name, State::Warning, detail, root);
    }
    Check::not(name, State::Missing, "neither CAP_PERFMON nor CAP_SYS_ADMIN", PERFMON_REMEDY)
}

/// Whether the kernel lets every user read events of all tasks (kernel/events/core.c:
/// perf_is_paranoid).
fn everybody_may() -> bool {
    let level = setting("/proc/sys/kernel/perf_event_paranoid");
    level.is_some_and(|level| level.trim().parse().is_ok_and(|level: i32| level <= -1))
}

fn paranoia() -> Check {
    let name = "perf_event_paranoid";
    let value = match seen("/proc/sys/kernel/perf_event_paranoid") {
        Ok(Some(value)) => value,
        Ok(None) => {
            let remedy = "a kernel with CONFIG_PERF_EVENTS is needed";
            return Check::not(name, State::Missing, "no perf events in this kernel", remedy);
        }
        Err(unseen) => return Check::of(name, Err(unseen)),
    };
    let may = |capability| has_capability(capability);
    if everybody_may() || may(CapabilitySet::PERFMON) || may(CapabilitySet::SYS_ADMIN) {
        return Check::ok(name, format!("{value}: this user may read events of all tasks"));
    }
    let detail = format!("{value}: this user may not read events of all tasks");
    Check::not(name, State::Missing, detail, PERFMON_REMEDY)
}

fn tracefs_mounted() -> Check {
    let name = "tracefs";
    if let Ok(place) = tracefs::find() {
        return Check::ok(name, format!("at {}", foreign::path(place)));
    }
    let systems = match look("/proc/filesystems") {
        Ok(text) => text.unwrap_or_default(),
        Err(unseen) => return Check::of(name, Err(unseen)),
    };
    let supported = systems.lines().any(|line| line.ends_with("\ttracefs"));
    let place = tracefs::PLACES[0];
    match (supported, has_capability(CapabilitySet::SYS_ADMIN)) {
        (true, true) => Check::ok(name, "not mounted; mounted for each run and unmounted again"),
        (true, false) => {
            let remedy = format!("as root: mount -t tracefs -o gid=GROUP,mode=750 tracefs {place}");
            Check::not(name, State::Missing, "not mounted, or not readable", &remedy)
        }
        (false, _) => {
            let remedy = "a kernel with CONFIG_EVENT_TRACING is needed";
            Check::not(name, State::Missing, "this kernel has none", remedy)
        }
    }
}

fn tracepoint(name: &'static str, system: &str, point: &str) -> Check {
    let full = format!("{system}:{point}");
    let Ok(place) = tracefs::find() else {
        let detail = format!("{full}: tracefs is not mounted yet");
        return Check::not(name, State::Warning, detail, "mount tracefs to find out");
    };
    match Tracepoint::find(&place, system, point) {
        Ok(found) => Check::ok(name, format!("{full}, number {}", found.id)),
        Err(error) => {
            let remedy =
                "x86 kernels with CONFIG_EVENT_TRACING have it; other architectures may not";
            Check::not(name, State::Missing, error.to_string(), remedy)
        }
    }
}

fn rings() -> Check {
    let name = "event rings";
    if tracefs::find().is_err() {
        let detail = "not tried: tracefs is not mounted yet";
        return Check::not(name, State::Warning, detail, "mount tracefs to find out");
    }
    // The runner opens the rings, and its rights may differ from ours.
    match Runner::find().map_err(|error| error.to_string()).and_then(|runner| runner.rings()) {
        Ok(how) => Check::ok(name, format!("one per CPU; {how}")),
        Err(error) => Check::not(name, State::Missing, error, PERFMON_REMEDY),
    }
}

fn zram() -> Result<Check, Unseen> {
    let name = "zram";
    if !is_there("/sys/class/zram-control")? {
        let module = format!("/lib/modules/{}/kernel/drivers/block/zram", release());
        if Path::new(&module).exists() {
            return Ok(Check::ok(name, "a module; loaded for a run that needs it"));
        }
        let remedy = "scenarios that swap need a kernel with CONFIG_ZRAM";
        return Ok(Check::not(name, State::Missing, "this kernel has none", remedy));
    }
    if has_capability(CapabilitySet::SYS_ADMIN) {
        return Ok(Check::ok(name, "devices can be added"));
    }
    let remedy = "run as root for scenarios that swap";
    Ok(Check::not(name, State::Warning, "present, but this user may not add devices", remedy))
}

fn zswap() -> Result<Check, Unseen> {
    Ok(match seen("/sys/module/zswap/parameters/enabled")?.as_deref() {
        Some("Y") => {
            let detail = "on; switched off while a scenario swaps, and on again";
            Check::not("zswap", State::Warning, detail, "")
        }
        Some(_) => Check::ok("zswap", "off"),
        None => Check::ok("zswap", "not in this kernel"),
    })
}

fn swap_in_use(environment: &BTreeMap<String, String>) -> Result<Check, Unseen> {
    look("/proc/swaps")?;
    let devices: Vec<&str> = environment
        .keys()
        .filter_map(|name| name.strip_prefix("swap.device."))
        .filter(|device| !device.ends_with(".compression"))
        .collect();
    Ok(match devices.is_empty() {
        true => Check::ok("swap in use", "none"),
        false => Check::ok("swap in use", format!("{}: not touched", devices.join(", "))),
    })
}

fn cpus() -> Check {
    let online = needless_runner::start::online_cpus();
    match online {
        0 | 1 => {
            let remedy = "most scenarios need a second CPU, which answers shootdowns";
            Check::not("CPUs", State::Missing, format!("{online} online"), remedy)
        }
        _ => Check::ok("CPUs", format!("{online} online")),
    }
}

fn optional(name: &'static str, path: &str) -> Check {
    let found = |value: Option<String>| {
        Check::ok(name, value.unwrap_or_else(|| "not in this kernel".to_owned()))
    };
    Check::of(name, seen(path).map(found))
}

fn numa_balancing() -> Result<Check, Unseen> {
    Ok(match seen("/proc/sys/kernel/numa_balancing")?.as_deref() {
        Some("0") => Check::ok("NUMA balancing", "off"),
        None => Check::ok("NUMA balancing", "not in this kernel"),
        Some(_) => {
            let remedy = "`sysctl kernel.numa_balancing=0` while measuring: it takes hint faults";
            Check::not("NUMA balancing", State::Warning, "on", remedy)
        }
    })
}

fn tlb_counters() -> Result<Check, Unseen> {
    let name = "nr_tlb_* counters";
    let text = look("/proc/vmstat")?.unwrap_or_default();
    Ok(match text.lines().any(|line| line.starts_with("nr_tlb_")) {
        true => Check::ok(name, "there"),
        false => {
            Check::ok(name, "not in this kernel (CONFIG_DEBUG_TLBFLUSH); events show the same")
        }
    })
}

fn userfaultfd() -> Result<Check, Unseen> {
    let there = is_there("/proc/sys/vm/unprivileged_userfaultfd")?;
    Ok(Check::ok("userfaultfd", if there { "there" } else { "not in this kernel" }))
}

fn soft_dirty(environment: &BTreeMap<String, String>) -> Check {
    let detail = match environment.get("config.MEM_SOFT_DIRTY").map(String::as_str) {
        Some("y") => "there",
        Some(_) => "not in this kernel",
        None => "unknown: the kernel's configuration cannot be read",
    };
    Check::ok("soft-dirty bits", detail)
}

fn hardware_counters() -> Result<Check, Unseen> {
    let mut there = false;
    for name in ["cpu", "cpu_core", "armv8_pmuv3", "armv8_pmuv3_0"] {
        there |= is_there(Path::new("/sys/bus/event_source/devices").join(name))?;
    }
    let found = if there { "there (not needed)" } else { "none (not needed)" };
    Ok(Check::ok("hardware counters", found))
}

fn clock() -> Check {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match setting(path).as_deref() {
        Some(name @ ("tsc" | "arch_sys_counter" | "timebase" | "riscv_clocksource")) => {
            Check::ok("clock", name)
        }
        other => {
            let detail = format!("{}: coarse, so events may tie", other.unwrap_or("unknown"));
            let remedy = "on x86: `clocksource=tsc tsc=reliable`, if the machine's TSC is";
            Check::not("clock", State::Warning, detail, remedy)
        }
    }
}

fn virtualization(environment: &BTreeMap<String, String>) -> Check {
    match environment.get("cpu.flag.hypervisor").map(String::as_str) {
        Some("yes") => {
            let detail = "a virtual machine: counts hold, cycles include the hypervisor's work";
            Check::not("virtualization", State::Warning, detail, "")
        }
        Some(_) => Check::ok("virtualization", "none seen"),
        None => Check::ok("virtualization", "unknown on this architecture"),
    }
}

/// Checks for changes that killed runs left on the machine, and for runs that still go on.
fn left_behind(standing: &[Standing]) -> Check {
    let name = "left behind";
    let left = standing.iter().filter_map(|found| match found {
        Standing::Left { holder, made } => {
            let list: Vec<String> = made.iter().map(Made::text).collect();
            Some(format!("by {holder}: {}", list.join(", ")))
        }
        Standing::Clean | Standing::Moot | Standing::Held { .. } => None,
    });
    let left: Vec<String> = left.collect();
    if !left.is_empty() {
        let remedy = "`needless doctor --clean` undoes it; so does the next live run";
        return Check::not(name, State::Warning, left.join("; "), remedy);
    }
    match standing.iter().find_map(|found| match found {
        Standing::Held { holder } => Some(holder),
        Standing::Clean | Standing::Moot | Standing::Left { .. } => None,
    }) {
        Some(holder) => Check::ok(name, format!("nothing; a live run is going on: {holder}")),
        None => Check::ok(name, "nothing"),
    }
}

/// Sums up what a live run can show here.
fn what_works(checks: &[Check]) -> Check {
    let missing =
        |name| checks.iter().any(|check| check.name == name && check.state == State::Missing);
    let name = "what works";
    if ["privilege", "tracefs", "fault events", "event rings"].into_iter().any(missing) {
        let detail = "model targets; live runs without swap: fault counts and cycles, no events";
        return Check::not(name, State::Warning, detail, "see above");
    }
    if missing("zram") || !has_capability(CapabilitySet::SYS_ADMIN) {
        let detail = "model targets; live runs with events, but not of scenarios that swap, set huge pages or have \
             files on ext4";
        return Check::not(name, State::Warning, detail, "see above");
    }
    Check::ok(name, "everything")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_behind_is_named_with_the_command_that_removes_it() {
        let made = vec![
            Made::Zram { number: 3, size_bytes: 4096, module_loaded: false },
            Made::Mounted { path: "/sys/kernel/tracing".into() },
        ];
        let left = Standing::Left { holder: "process 9, scenario x".into(), made };
        let held = Standing::Held { holder: "process 8".into() };
        let check = left_behind(&[held.clone(), left]);
        assert_eq!(check.state, State::Warning);
        for part in ["process 9", "/dev/zram3", "tracefs mounted at /sys/kernel/tracing"] {
            assert!(check.detail.contains(part), "{check:?}");
        }
        assert!(check.remedy.unwrap().contains("doctor --clean"));
        assert!(left_behind(&[held]).detail.contains("process 8"));
        assert_eq!(left_behind(&[]), Check::ok("left behind", "nothing"));
    }

    #[test]
    fn everything_missing_has_a_remedy() {
        let checks = doctor();
        assert!(checks.len() > 15);
        for check in checks {
            assert!(!check.detail.is_empty(), "{check:?}");
            assert!(check.state != State::Missing || check.remedy.is_some(), "{check:?}");
        }
    }
}
