//! Collects the environment that is kept with every result, by name.
//!
//! A file that does not exist gives no entry. There are no made-up values.

use flate2::read::GzDecoder;
use needless_model::foreign;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;

/// Files whose contents are taken as they are, with brackets resolved to the chosen word.
const FILES: [(&str, &str); 29] = [
    ("kernel.version", "/proc/sys/kernel/version"),
    ("kernel.cmdline", "/proc/cmdline"),
    ("thp.enabled", "/sys/kernel/mm/transparent_hugepage/enabled"),
    ("thp.defrag", "/sys/kernel/mm/transparent_hugepage/defrag"),
    ("thp.shmem_enabled", "/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
    ("thp.use_zero_page", "/sys/kernel/mm/transparent_hugepage/use_zero_page"),
    ("thp.khugepaged_defrag", "/sys/kernel/mm/transparent_hugepage/khugepaged/defrag"),
    ("clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("cpu.online", "/sys/devices/system/cpu/online"),
    ("cpu.smt", "/sys/devices/system/cpu/smt/active"),
    ("cpu.governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    ("numa.nodes", "/sys/devices/system/node/online"),
    ("numa.balancing", "/proc/sys/kernel/numa_balancing"),
    ("numa.demotion", "/sys/kernel/mm/numa/demotion_enabled"),
    ("swap.zswap", "/sys/module/zswap/parameters/enabled"),
    ("swap.page-cluster", "/proc/sys/vm/page-cluster"),
    ("swap.swappiness", "/proc/sys/vm/swappiness"),
    ("vm.lru_gen", "/sys/kernel/mm/lru_gen/enabled"),
    ("vm.fault_around_bytes", "/sys/kernel/debug/fault_around_bytes"),
    ("vm.overcommit_memory", "/proc/sys/vm/overcommit_memory"),
    ("vm.tlb_single_page_flush_ceiling", "/sys/kernel/debug/x86/tlb_single_page_flush_ceiling"),
    ("ksm.run", "/sys/kernel/mm/ksm/run"),
    ("aslr", "/proc/sys/kernel/randomize_va_space"),
    ("perf_event_paranoid", "/proc/sys/kernel/perf_event_paranoid"),
    ("load", "/proc/loadavg"),
    ("pressure.cpu", "/proc/pressure/cpu"),
    ("pressure.memory", "/proc/pressure/memory"),
    ("hypervisor.type", "/sys/hypervisor/type"),
    ("machine", "/sys/class/dmi/id/product_name"),
];

/// Options of the kernel's configuration that matter here.
const CONFIG: [&str; 27] = [
    "ARCH_WANT_BATCHED_UNMAP_TLB_FLUSH",
    "BROADCAST_TLB_FLUSH",
    "DEBUG_TLBFLUSH",
    "DEBUG_VM",
    "HZ",
    "KASAN",
    "KVM_GUEST",
    "LRU_GEN",
    "LRU_GEN_ENABLED",
    "MEMCG",
    "MEM_SOFT_DIRTY",
    "MITIGATION_PAGE_TABLE_ISOLATION",
    "MMU_GATHER_RCU_TABLE_FREE",
    "NUMA_BALANCING",
    "PAGE_TABLE_ISOLATION",
    "PARAVIRT",
    "PER_VMA_LOCK",
    "PREEMPT",
    "PREEMPT_DYNAMIC",
    "PREEMPT_LAZY",
    "PREEMPT_NONE",
    "PREEMPT_VOLUNTARY",
    "PT_RECLAIM",
    "TRANSPARENT_HUGEPAGE",
    "USERFAULTFD",
    "ZRAM",
    "ZSWAP",
];

/// Processor flags that decide how TLBs are flushed.
const CPU_FLAGS: [&str; 6] = ["pcid", "invpcid", "invlpgb", "la57", "pti", "hypervisor"];

/// Collects the current environment.
pub fn environment() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    found.insert("kernel.release".to_owned(), foreign::line(&release()).into_owned());
    let machine = rustix::system::uname().machine().to_string_lossy().into_owned();
    found.insert("machine".to_owned(), machine);
    for (name, path) in FILES {
        if let Some(value) = setting(path) {
            found.insert(name.to_owned(), value);
        }
    }
    found.extend(kernel_config());
    found.extend(processor());
    found.extend(listed("vulnerability", "/sys/devices/system/cpu/vulnerabilities"));
    found.extend(huge_page_sizes());
    found.extend(swap_devices());
    found.extend(cgroup_limits());
    found
}

/// The kernel's release, as `uname` gives it.
pub fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The series of the running kernel: 6.12 is `(6, 12)`.
pub fn series() -> (u32, u32) {
    let release = release();
    let mut parts = release.split(['.', '-']).map_while(|part| part.parse().ok());
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// The value of a settings file: the word in brackets, or else all its lines in one.
pub fn setting(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
        Some((word, _)) if !path.ends_with("cmdline") => word.to_owned(),
        _ => text.lines().collect::<Vec<_>>().join("; "),
    })
    .map(|value| foreign::line(&value).into_owned())
}

/// The configuration of the running kernel, where it can be read.
fn kernel_config() -> BTreeMap<String, String> {
    let Some(text) = config_text() else { return BTreeMap::new() };
    let value = |option: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix("CONFIG_")?.strip_prefix(option)?.strip_prefix('='))
    };
    CONFIG
        .iter()
        .map(|option| (format!("config.{option}"), value(option).unwrap_or("n").to_owned()))
        .collect()
}

fn config_text() -> Option<String> {
    if let Ok(file) = fs::File::open("/proc/config.gz") {
        let mut text = String::new();
        if GzDecoder::new(file).read_to_string(&mut text).is_ok() {
            return Some(text);
        }
    }
    let release = release();
    [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")]
        .iter()
        .find_map(|path| fs::read_to_string(path).ok())
}

/// Model, stepping, microcode and the flags that matter of the first processor.
fn processor() -> BTreeMap<String, String> {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut found = BTreeMap::new();
    for line in text.lines().take_while(|line| !line.is_empty()) {
        let Some((name, value)) = line.split_once(':') else { continue };
        let (name, value) = (name.trim(), value.trim());
        match name {
            "vendor_id" | "model name" | "cpu family" | "model" | "stepping" | "microcode"
            | "CPU implementer" | "CPU part" | "CPU revision" => {
                found.insert(format!("cpu.{}", name.replace(' ', "-")), value.to_owned());
            }
            "flags" | "Features" => {
                let flags: Vec<&str> = value.split(' ').collect();
                found.extend(CPU_FLAGS.iter().map(|flag| {
                    let has = if flags.contains(flag) { "yes" } else { "no" };
                    (format!("cpu.flag.{flag}"), has.to_owned())
                }));
            }
            _ => {}
        }
    }
    found
}

/// The value of each file in a folder, by name.
fn listed(prefix: &str, folder: &str) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let value = setting(entry.path().to_str()?)?;
            Some((format!("{prefix}.{}", entry.file_name().to_string_lossy()), value))
        })
        .collect()
}

/// The mode of each huge page size (`hugepages-64kB/enabled`), since 6.8.
fn huge_page_sizes() -> BTreeMap<String, String> {
    let folder = "/sys/kernel/mm/transparent_hugepage";
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let size = name.strip_prefix("hugepages-")?;
            let value = setting(&format!("{folder}/{name}/enabled"))?;
            Some((format!("thp.{size}"), value))
        })
        .collect()
}

/// Swap space in use, with the compression of zram devices.
fn swap_devices() -> BTreeMap<String, String> {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let mut found = BTreeMap::new();
    for line in swaps.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [device, kind, size_kib, _, priority] = fields[..] else { continue };
        let size = format!("{kind}, {size_kib} KiB, priority {priority}");
        found.insert(format!("swap.device.{device}"), size);
        if let Some(name) = device.strip_prefix("/dev/zram")
            && let Some(algorithm) = setting(&format!("/sys/block/zram{name}/comp_algorithm"))
        {
            found.insert(format!("swap.device.{device}.compression"), algorithm);
        }
    }
    found
}

/// Limits of the runner's own control group (version 2).
fn cgroup_limits() -> BTreeMap<String, String> {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(path) = text.lines().find_map(|line| line.strip_prefix("0::")) else {
        return BTreeMap::new();
    };
    ["memory.max", "memory.high", "memory.swap.max", "cpu.max", "cpuset.cpus.effective"]
        .iter()
        .filter_map(|name| {
            let value = setting(&format!("/sys/fs/cgroup{path}/{name}"))?;
            Some((format!("cgroup.{name}"), value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_the_kernel_and_nothing_empty() {
        let environment = environment();
        assert!(!environment["kernel.release"].is_empty());
        assert!(environment.contains_key("kernel.cmdline"));
        assert!(!environment.contains_key("no.such"));
    }

    #[test]
    fn brackets_choose() {
        let path = std::env::temp_dir().join(format!("needless-setting-{}", std::process::id()));
        fs::write(&path, "a [b] c\n").unwrap();
        assert_eq!(setting(path.to_str().unwrap()).as_deref(), Some("b"));
        fs::remove_file(&path).unwrap();
        assert_eq!(setting(path.to_str().unwrap()), None);
    }
}
