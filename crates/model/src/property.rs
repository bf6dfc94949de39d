//! The properties that the checker checks, by number and name.
//!
//! Each property has a twin, which says that its case occurred at all. A property that holds
//! because nothing happened proves nothing. The checker checks the properties; scenarios name them.

/// Declares [`Property`] with the number, words and twin of each property.
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

            /// The property's number, as in `P1`.
            pub const fn number(self) -> &'static str {
                match self { $(Property::$name => $number,)* }
            }

            /// The property in words.
            pub const fn words(self) -> &'static str {
                match self { $(Property::$name => $words,)* }
            }

            /// When the property's case has occurred, in words.
            pub const fn twin(self) -> &'static str {
                match self { $(Property::$name => $twin,)* }
            }
        }
    };
}

// The last properties are judged only if a row asks for them.
properties! {
    /// No access reaches a frame that was freed after its translation was cached.
    NoUseAfterFree = "P1", "no use after free through a stale translation",
        exercised when "an access went through a translation that the page table no longer held";
    /// A load returns the last store.
    Coherence = "P2", "a load returns the last store",
        exercised when "a load read what another thread had stored";
    /// A completed store is in the frame that is mapped at the end.
    NoLostWrite = "P3", "no store is lost",
        exercised when "a page that was stored to was copied, came back from swap, or was stored to again after MADV_FREE";
    /// A frame that differs from its copy on swap is known to be dirty.
    NoLostDirty = "P4", "a modified page is known to be dirty",
        exercised when "a page was stored to after it had been cleaned";
    /// After `munmap` or `mprotect` has returned, no CPU can use the old right.
    Revoked = "P5", "what was revoked cannot be used any more",
        exercised when "a system call returned that had found something to revoke";
    /// A store after a fork never shows in the other process.
    ForkIsolation = "P6", "no store after a fork shows in the other process",
        exercised when "a process stored to a page that another one has a copy of, or holds";
    /// A pinned page stays the one that is mapped.
    PinConsistency = "P7", "a pinned page stays the one that is mapped",
        exercised when "a page was stored to while it was pinned";
    /// A store to a tracked page waits for userfaultfd's answer, or is recorded (for a scan or
    /// pagemap).
    ToldOf = "P8", "no store to a tracked page goes unnoticed",
        exercised when "userfaultfd was asked about a store, or a store was recorded";
    /// Where the architecture requires it, no CPU may hold two translations of one address with
    /// different frames or sizes: the kernel removes the first one, and waits for its invalidation,
    /// before it sets the second one.
    BreakBeforeMake = "P9", "a translation is removed everywhere before another one takes its place",
        exercised when "a page was copied or came back from swap, or the entry of a huge page was removed";
    /// A CPU's identifier belongs to one address space, and has no translation of another one.
    AsidIsolation = "P10", "an address-space identifier holds nothing of another address space",
        exercised when "an identifier was handed to another address space";
    /// An access faults a bounded number of times.
    Progress = "P11", "an access makes progress",
        exercised when "an access faulted";
    /// A page-table page is freed only when no CPU's paging-structure caches can name it. No PTE is
    /// set in it afterwards.
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
    /// The properties that kernels need not have. They are judged only if a row asks for one
    /// (`ask=R`, `ask=D`).
    pub const ASKED: &'static [Property] = &[Property::InstalledAtRetry, Property::DirtyAtRetry];

    /// The properties that a row can leave unjudged (`forgo`).
    pub const FORGONE: &'static [Property] =
        &[Property::NoUseAfterFree, Property::Revoked, Property::BreakBeforeMake];

    /// Whether the property is judged on every row. Break-before-make is judged where the
    /// architecture requires it; accesses to free frames and revocation are judged unless the row
    /// forgoes this; the others if a row asks for them.
    pub fn is_always_judged(self) -> bool {
        !Property::FORGONE.contains(&self) && !Property::ASKED.contains(&self)
    }

    /// The property with that number, such as `P1`.
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
