//! Marks for an emulator that counts instructions. They show where rounds and phases begin and end.
//!
//! On arm64 a mark is one of the hint instructions that the architecture leaves unallocated. Every
//! processor executes it as a `nop`. The project's QEMU plugin (crates/qemu-plugin) recognises it
//! and writes down what was executed since the last mark. Other architectures have no such plugin.
//! There a mark does nothing.

/// A mark. Its number is the immediate of the hint instruction.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mark {
    /// A round begins.
    RoundBegins = 121,
    /// A phase of the round ends and the next one begins.
    Phase = 122,
    /// The current round ends.
    RoundEnds = 123,
    /// The last round counts.
    RoundCounts = 124,
    /// A guest's first process has finished an errand, however the errand ended.
    ErrandEnds = 125,
}

impl Mark {
    /// All marks, in the order of their numbers.
    pub const ALL: [Mark; 5] =
        [Mark::RoundBegins, Mark::Phase, Mark::RoundEnds, Mark::RoundCounts, Mark::ErrandEnds];

    /// Makes the mark. The compiler moves no access to memory across it.
    #[inline]
    pub fn make(self) {
        #[cfg(target_arch = "aarch64")]
        // SAFETY: an unallocated hint does nothing.
        unsafe {
            use std::arch::asm;
            match self {
                Mark::RoundBegins => asm!("hint #121", options(nostack, preserves_flags)),
                Mark::Phase => asm!("hint #122", options(nostack, preserves_flags)),
                Mark::RoundEnds => asm!("hint #123", options(nostack, preserves_flags)),
                Mark::RoundCounts => asm!("hint #124", options(nostack, preserves_flags)),
                Mark::ErrandEnds => asm!("hint #125", options(nostack, preserves_flags)),
            }
        }
    }

    /// The mark with this number.
    pub fn from_number(number: u8) -> Option<Mark> {
        Mark::ALL.into_iter().find(|mark| *mark as u8 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_apart_and_marks_do_no_harm() {
        for mark in Mark::ALL {
            assert_eq!(Mark::from_number(mark as u8), Some(mark));
            mark.make();
        }
        assert_eq!(Mark::from_number(0), None);
    }
}
