//! What khugepaged makes huge pages of on other kernels, against what the model says.
use super::program::{execute, kernels_of, program};
use crate::common;
use needless_guest::{Arch, GuestOptions};
use needless_model::kernels::KernelRow;
use needless_model::program::{MachineNeeds, SwapKind, SwapNeed, ThpMode};
use needless_testing::turn;

#[test]
fn khugepaged_does_what_the_model_says_on_every_kernel() {
    let _turn = turn();
    let program = program(Arch::X86_64).unwrap();
    let swap = Some(SwapNeed { kind: SwapKind::Zram, size_bytes: 64 << 20 });
    let machine = MachineNeeds { swap, thp: Some(ThpMode::Madvise), ..MachineNeeds::default() };
    for kernel in kernels_of(Arch::X86_64, "5.10 6.1 6.12 6.18 7.3") {
        let options = GuestOptions::default();
        let done = execute(&kernel, &program, options, &common::KHUGEPAGED, &machine);
        assert!(done.status == 0, "{kernel}: {}", String::from_utf8_lossy(&done.errors));
        println!("{kernel}: {}", String::from_utf8_lossy(&done.output));
        let tried = common::khugepaged_agrees(&done.output, &KernelRow::parse(&kernel).unwrap());
        assert_eq!(tried, 14, "{kernel}");
    }
}
