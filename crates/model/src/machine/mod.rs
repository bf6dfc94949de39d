//! The machine: CPUs with their TLBs, frames, page tables, swap space.
//!
//! This is state only. The kernel operations on it are in `kernel/`, one file for each.

mod by_node;
pub mod consistency;
pub mod cpu;
pub mod cpuset;
pub mod files;
pub mod frames;
mod huge;
mod large;
pub mod lockless;
pub mod lru;
pub mod may_cache;
pub mod mlocked;
pub mod mm;
pub mod nodes;
pub mod objects;
pub mod page_table;
pub mod pins;
pub mod room;
pub mod sim_tlbs;
pub mod swap;
pub mod tiers;
pub mod tlb;
pub mod tlb_array;
pub mod unmap_batch;
mod upgraded;
pub mod vma;
pub mod walk;
pub mod world;
