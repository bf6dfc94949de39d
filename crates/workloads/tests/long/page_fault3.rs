//! page_fault3 in two tasks on other kernels: the kernel makes each fault minor or major, as the
//! model says.
use super::program::{execute, kernels_of, program};
use crate::common;
use needless_guest::{Arch, GuestOptions};
use needless_model::kernels::KernelRow;
use needless_model::program::MachineNeeds;
use needless_testing::turn;

#[test]
fn its_faults_are_minor_or_major_as_its_scenario_says_on_every_kernel() {
    let _turn = turn();
    let program = program(Arch::X86_64).unwrap();
    for kernel in kernels_of(Arch::X86_64, "5.10 7.3") {
        for tasks_are in ["--processes", "--threads"] {
            let options = GuestOptions { disk: true, ..GuestOptions::default() };
            let words = common::page_fault3(tasks_are);
            let done = execute(&kernel, &program, options, &words, &MachineNeeds::default());
            assert!(done.status == 0, "{kernel}: {}", String::from_utf8_lossy(&done.errors));
            common::faults_agree(&done.output, &KernelRow::parse(&kernel).unwrap());
        }
    }
}
