//! The properties, by number and name.
//!
//! Each has a twin: that the case which it is about occurred at all. A property that holds because
//! nothing happened proves nothing. The checker checks them; scenarios name them.

/// Declares [`Property`] with number, name, and what its twin says.
macro_rules! properties {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $words:literal, exercised when $twin:literal;)*) => {
        /// A safety property.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Property {
            $($(#[$doc])* $name,)*
        }

        impl Property {
            /// The properties that are checked.
            pub const ALL: &'static [Property] = &[$(Property::$name),*];

            /// Its number, as in `P1`.
            pub const fn number(self) -> &'static str {
                match self { $(Property::$name => $number,)* }
            }

            /// What it says.
            pub const fn words(self) -> &'static str {
                match self { $(Property::$name => $words,)* }
            }

            /// When the case that it is about has occurred.
            pub const fn twin(self) -> &'static str {
                match self { $(Property::$name => $twin,)* }
            }
        }
    };
}

// At the end is what is judged only if a row asks for it.
properties! {
    /// No access hits a frame that was freed since its translation was cached.
    NoUseAfterFree = "P1", "no use after free through a stale translation",
        exercised when "an access went through a translation that the page table did not hold any more";
    /// A load returns the last store.
    Coherence = "P2", "a load returns the last store",
        exercised when "a load met what another thread had stored";
    /// A completed store is in the frame that is mapped in the end.
    NoLostWrite = "P3", "no store is lost",
        exercised when "a page that was stored to was copied, came back from swap, or was stored to again after MADV_FREE";
    /// A frame that differs from its copy on swap is known to be dirty.
    NoLostDirty = "P4", "a modified page is known to be dirty",
        exercised when "a page was stored to after it had been cleaned";
    /// Once `munmap` or `mprotect` returned, no CPU can use the old right.
    Revoked = "P5", "what was revoked cannot be used any more",
        exercised when "a system call returned that had found something to revoke";
    /// What a process stores after a fork, the other process never sees.
    ForkIsolation = "P6", "no store after a fork shows in the other process",
        exercised when "a process stored to a page that another one has a copy of, or holds";
    /// A page that is pinned is the one that is mapped.
    PinConsistency = "P7", "a pinned page stays the one that is mapped",
        exercised when "a page was stored to while it was pinned";
    /// A store to a page that is tracked waits for whoever is told (userfaultfd), or is noted (a scan or pagemap tells).
    ToldOf = "P8", "no store to a tracked page goes by unnoticed",
        exercised when "userfaultfd was asked about a store, or one was noted";
    /// Where the architecture asks for it, no CPU may hold two translations of one address that differ in their frame or
    /// their size: the first is taken away, and waited for, before the second is set.
    BreakBeforeMake = "P9", "a translation is taken away everywhere before another one comes to its place",
        exercised when "a page was copied or came back from swap, or a huge page was taken away";
    /// A CPU's identifier belongs to one address space, and holds nothing of another's.
    AsidIsolation = "P10", "an address-space identifier holds nothing of another address space",
        exercised when "an identifier was handed to another address space";
    /// An access faults a bounded number of times.
    Progress = "P11", "an access makes progress",
        exercised when "an access faulted";
    /// A page-table page is freed only when no CPU's paging-structure caches can name it, and no PTE is
    /// set in it then.
    TableReuse = "P12", "no page table is used after it was freed",
        exercised when "a page table was freed that another CPU might have cached";
    /// A fault that gives its lock back to be tried again has set its PTE.
    InstalledAtRetry = "R", "a fault that is to be tried again has mapped its page",
        exercised when "a fault gave its lock back to be tried again";
    /// A second try of a store that finds its page mapped for stores finds it dirty.
    DirtyAtRetry = "D", "a second try of a store finds its page dirty",
        exercised when "a second try of a store found its page dirty";
}

impl Property {
    /// Those that kernels need not have: they are judged where a row asks for one (`ask=R`, `ask=D`).
    pub const ASKED: &'static [Property] = &[Property::InstalledAtRetry, Property::DirtyAtRetry];

    /// Those that a row can leave unjudged (`forgo`).
    pub const FORGONE: &'static [Property] = &[Property::NoUseAfterFree, Property::BreakBeforeMake];

    /// Whether it is judged on every row. Of the others, break-before-make is where the
    /// architecture asks for it, and accesses to free frames are unless the row forgoes it.
    pub fn is_always_judged(self) -> bool {
        !Property::FORGONE.contains(&self) && !Property::ASKED.contains(&self)
    }

    /// The property of that number: `P1`.
    pub fn parse(number: &str) -> Option<Property> {
        Property::ALL.iter().copied().find(|property| property.number() == number)
    }
}

impl std::fmt::Display for Property {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.number(), self.words())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_name_properties() {
        for property in Property::ALL {
            assert_eq!(Property::parse(property.number()), Some(*property));
        }
        for none in ["", "P", "P0", "p1", "P1 "] {
            assert_eq!(Property::parse(none), None, "{none}");
        }
    }
}
