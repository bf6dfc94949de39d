//! Feature groups: what a scenario is about, for tables over many scenarios.

use needless_model::program::{Op, OpKind, Program, all_ops};
use std::collections::BTreeSet;

/// A feature that scenarios use. A scenario belongs to each group of which it has an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Nothing but reads and writes.
    Access,
    /// A call into the kernel.
    Call(&'static str),
    /// Processes may share some of the memory.
    Shared,
    /// There are files.
    Files,
    /// Another thread acts, too.
    Threads,
    /// Another CPU is idle and holds the address space lazily.
    Lazy,
}

impl Group {
    /// The group's name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Access => "access only",
            Group::Call(name) => name,
            Group::Shared => "shared memory",
            Group::Files => "files",
            Group::Threads => "two threads act",
            Group::Lazy => "lazy CPU",
        }
    }

    /// The groups that a program belongs to.
    pub fn of(program: &Program) -> BTreeSet<Group> {
        let mut groups = BTreeSet::new();
        for (number, thread) in program.threads.iter().enumerate() {
            groups.extend(all_ops(&thread.body).filter_map(|op| group(&op.kind)));
            groups.extend((number > 0 && acts(&thread.body)).then_some(Group::Threads));
        }
        let shared = program.areas.iter().any(|area| area.backing.is_shared());
        groups.extend(shared.then_some(Group::Shared));
        groups.extend((!program.files.is_empty()).then_some(Group::Files));
        let calls = groups.iter().any(|group| matches!(group, Group::Call(_)));
        if !calls {
            groups.insert(Group::Access);
        }
        groups
    }
}

fn group(kind: &OpKind) -> Option<Group> {
    match kind {
        OpKind::Call(call) => call.group().map(Group::Call),
        OpKind::Sleep { .. } | OpKind::Serve { .. } => Some(Group::Lazy),
        OpKind::Touch { .. }
        | OpKind::Spin
        | OpKind::Barrier { .. }
        | OpKind::Mark { .. }
        | OpKind::Repeat { .. }
        | OpKind::ForEach { .. }
        | OpKind::Rounds { .. }
        | OpKind::Measure { .. } => None,
    }
}

/// Whether a thread does more than hold its CPU.
fn acts(body: &[Op]) -> bool {
    body.iter()
        .any(|op| !matches!(op.kind, OpKind::Spin | OpKind::Sleep { .. } | OpKind::Serve { .. }))
}
