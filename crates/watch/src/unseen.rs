//! Flushes that are sent by other means than interrupts, so that no event of `tlb:tlb_flush` tells:
//! what is counted then is a lower bound.

use crate::missing::Missing;
use needless_runner::look::{Unseen, look};
use needless_runner::tracefs::Tracepoint;
use std::path::Path;

/// What the kernel and its processor say of themselves.
#[derive(Debug, Default)]
pub struct Signs {
    /// The text of `/proc/cpuinfo`.
    pub cpuinfo: String,
    /// What the hypervisor calls itself, if there is one.
    pub hypervisor: Option<String>,
    /// How a guest of Xen runs: `PV`, `PVH` or `HVM`.
    pub xen: Option<String>,
}

impl Signs {
    /// Those of this machine.
    pub fn here() -> Result<Signs, Unseen> {
        let cpuinfo = look("/proc/cpuinfo")?.unwrap_or_default();
        let xen = look("/sys/hypervisor/guest_type")?.map(|kind| kind.trim().to_owned());
        let guest = has_flag(&cpuinfo, "hypervisor");
        Ok(Signs { hypervisor: guest.then(hypervisor).flatten(), cpuinfo, xen })
    }

    /// The means that this kernel may flush by and no event that is watched tells.
    pub fn unseen(&self, tracefs: &Path) -> Vec<Missing> {
        let has = |system, name| Tracepoint::find(tracefs, system, name).is_ok();
        let mut means = Vec::new();
        // 6.15 and later name the flag where they use it (arch/x86/include/asm/cpufeatures.h, 7.3).
        if has_flag(&self.cpuinfo, "invlpgb") {
            let why = "this processor broadcasts flushes, which interrupt nobody and which no event tells \
                 (arch/x86/mm/tlb.c: broadcast_tlb_flush, arch_tlbbatch_flush)";
            means.push(("INVLPGB", why, Some("`clearcpuid=invlpgb` on the kernel's command line")));
        }
        if self.hypervisor.as_deref() == Some("Microsoft Hv")
            && has("hyperv", "hyperv_mmu_flush_tlb_multi")
        {
            let why = "the hypervisor is asked to flush other processors, and only \
                 hyperv:hyperv_mmu_flush_tlb_multi tells (arch/x86/hyperv/mmu.c: hyperv_flush_tlb_multi)";
            means.push(("Hyper-V's flushes", why, None));
        }
        if self.xen.as_deref() == Some("PV") && has("xen", "xen_mmu_flush_tlb_multi") {
            let why = "the hypervisor is asked to flush other processors, and only \
                 xen:xen_mmu_flush_tlb_multi tells (arch/x86/xen/mmu_pv.c: xen_flush_tlb_multi)";
            means.push(("Xen's flushes", why, None));
        }
        means
            .into_iter()
            .map(|(what, why, remedy)| Missing::new(what, &why, LACKS, remedy))
            .collect()
    }
}

const LACKS: &str = "flushes that are sent without interrupts: those counted are a lower bound";

/// What of the flushes here no event tells.
pub fn unseen(tracefs: &Path) -> Vec<Missing> {
    match Signs::here() {
        Ok(signs) => signs.unseen(tracefs),
        Err(unseen) => vec![Missing::unseen(&unseen, LACKS)],
    }
}

fn has_flag(cpuinfo: &str, flag: &str) -> bool {
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':'));
    flags.is_some_and(|(_, flags)| flags.split_whitespace().any(|known| known == flag))
}

/// The name that a hypervisor gives at leaf 0x4000_0000 (arch/x86/kernel/cpu/mshyperv.c:
/// ms_hyperv_platform).
#[cfg(target_arch = "x86_64")]
fn hypervisor() -> Option<String> {
    let leaf = std::arch::x86_64::__cpuid(0x4000_0000);
    let name = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat();
    let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
    Some(name).filter(|name| !name.is_empty())
}

#[cfg(not(target_arch = "x86_64"))]
fn hypervisor() -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tracefs with these events.
    fn events(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let place = folder.path().join("events").join(name);
            std::fs::create_dir_all(&place).unwrap();
            std::fs::write(place.join("id"), "7\n").unwrap();
            std::fs::write(place.join("format"), "").unwrap();
        }
        folder
    }

    fn signs(flags: &str, hypervisor: &str, xen: &str) -> Signs {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let cpuinfo = format!("processor\t: 0\nflags\t\t: fpu {flags}\n\nprocessor\t: 1\n");
        Signs { cpuinfo, hypervisor: some(hypervisor), xen: some(xen) }
    }

    #[test]
    fn each_means_is_known_by_its_signs() {
        let all = ["hyperv/hyperv_mmu_flush_tlb_multi", "xen/xen_mmu_flush_tlb_multi"];
        let (all, none) = (events(&all), events(&[]));
        let told = |signs: &Signs, folder: &tempfile::TempDir| -> Vec<String> {
            signs.unseen(folder.path()).into_iter().map(|missing| missing.what).collect()
        };
        assert_eq!(told(&signs("invlpgb pcid", "", ""), &none), ["INVLPGB"]);
        assert_eq!(told(&signs("noinvlpgb", "", ""), &all), [""; 0], "another flag");
        assert_eq!(told(&signs("", "Microsoft Hv", ""), &all), ["Hyper-V's flushes"]);
        assert_eq!(told(&signs("", "Microsoft Hv", ""), &none), [""; 0], "a kernel without it");
        assert_eq!(
            told(&signs("", "KVMKVMKVM", ""), &all),
            [""; 0],
            "it has it and runs elsewhere"
        );
        assert_eq!(told(&signs("", "XenVMMXenVMM", "PV"), &all), ["Xen's flushes"]);
        assert_eq!(told(&signs("", "XenVMMXenVMM", "HVM"), &all), [""; 0]);
        assert_eq!(told(&signs("invlpgb", "Microsoft Hv", ""), &all).len(), 2);
    }

    #[test]
    fn this_machine_says_what_it_is() {
        let here = Signs::here().unwrap();
        assert!(here.cpuinfo.contains("processor"));
        assert_eq!(here.hypervisor.is_some(), has_flag(&here.cpuinfo, "hypervisor"));
    }
}
