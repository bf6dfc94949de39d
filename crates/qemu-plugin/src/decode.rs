//! Decodes the A64 instructions that are counted, and names them.
//!
//! Source: Arm Architecture Reference Manual for A-profile (DDI 0487), C4.1 "A64 instruction set
//! encoding" (hints, barriers, SYS) and C5.5 "A64 System instructions for TLB maintenance".

/// The first hint that is a mark. The architecture allocates no hint from here to the last one,
/// 127.
pub const FIRST_MARK: u8 = 112;

/// The meaning of an instruction for the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A mark of the runner, with its number.
    Mark(u8),
    /// An instruction that is counted, with its name.
    Counted(String),
}

/// The meaning of the instruction `word`; `None` if it does not matter here.
pub fn decode(word: u32) -> Option<Meaning> {
    if word & 0xffff_f01f == 0xd503_201f {
        let number = (word >> 5 & 0x7f) as u8;
        return (number >= FIRST_MARK).then_some(Meaning::Mark(number));
    }
    barrier(word).or_else(|| invalidation(word)).map(Meaning::Counted)
}

/// Decodes `DSB option` and, for FEAT_XS, `DSB optionnXS`.
fn barrier(word: u32) -> Option<String> {
    const OPTIONS: [&str; 16] = [
        "ssbb", "oshld", "oshst", "osh", "pssbb", "nshld", "nshst", "nsh", "#8", "ishld", "ishst",
        "ish", "#12", "ld", "st", "sy",
    ];
    const NXS: [&str; 4] = ["oshnxs", "nshnxs", "ishnxs", "synxs"];
    let option = (word >> 8 & 15) as usize;
    if word & 0xffff_f0ff == 0xd503_309f {
        // Two of the sixteen are separate instructions, against speculation.
        return Some(match option {
            0 | 4 => OPTIONS[option].to_owned(),
            _ => format!("dsb {}", OPTIONS[option]),
        });
    }
    (word & 0xffff_f3ff == 0xd503_323f).then(|| format!("dsb {}", NXS[option >> 2]))
}

/// Decodes `TLBI operation`: `SYS #op1, C8, CRm, #op2`, and `C9` for the variants of FEAT_XS.
fn invalidation(word: u32) -> Option<String> {
    if word & 0xfff8_e000 != 0xd508_8000 {
        return None;
    }
    let field = |shift: u32, mask: u32| (word >> shift & mask) as usize;
    let (op1, crn, crm, op2) = (field(16, 7), field(12, 15), field(8, 15), field(5, 7));
    let name = if op1 == 0 { el1_operation(crm, op2) } else { None };
    let suffix = if crn == 9 { "nxs" } else { "" };
    Some(match name {
        Some(name) => format!("tlbi {name}{suffix}"),
        // An operation of another exception level has no name here. It gets the form of the manual.
        None => format!("sys #{op1}, c{crn}, c{crm}, #{op2}"),
    })
}

/// Names the operations on the translations of EL1 and EL0.
fn el1_operation(crm: usize, op2: usize) -> Option<String> {
    const SINGLE: [&str; 8] = ["vmalle1", "vae1", "aside1", "vaae1", "", "vale1", "", "vaale1"];
    const RANGE: [&str; 8] = ["", "rvae1", "", "rvaae1", "", "rvale1", "", "rvaale1"];
    let (names, sharing) = match crm {
        1 => (SINGLE, "os"),
        2 => (RANGE, "is"),
        3 => (SINGLE, "is"),
        5 => (RANGE, "os"),
        6 => (RANGE, ""),
        7 => (SINGLE, ""),
        _ => return None,
    };
    let name = names[op2];
    (!name.is_empty()).then(|| format!("{name}{sharing}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(word: u32) -> Option<String> {
        match decode(word)? {
            Meaning::Counted(name) => Some(name),
            Meaning::Mark(_) => None,
        }
    }

    /// The words are as LLVM assembles them.
    #[test]
    fn instructions_are_called_what_the_assembler_calls_them() {
        for (word, name) in ASSEMBLED {
            assert_eq!(counted(*word).as_deref(), Some(*name), "{word:#x}");
        }
    }

    #[test]
    fn other_exception_levels_are_counted_under_the_manuals_form() {
        // tlbi vae2is, x4; tlbi vmalls12e1is
        assert_eq!(counted(0xd50c_8324).as_deref(), Some("sys #4, c8, c3, #1"));
        assert_eq!(counted(0xd50c_83df).as_deref(), Some("sys #4, c8, c3, #6"));
    }

    #[test]
    fn everything_else_is_left_alone() {
        for (word, text) in OTHERS {
            assert_eq!(decode(*word), None, "{text}");
        }
    }

    #[test]
    fn marks_are_unallocated_hints() {
        // hint #121, hint #127; hint #111 is below the first mark.
        assert_eq!(decode(0xd503_2f3f), Some(Meaning::Mark(121)));
        assert_eq!(decode(0xd503_2fff), Some(Meaning::Mark(127)));
        assert_eq!(decode(0xd503_2dff), None);
    }

    const ASSEMBLED: &[(u32, &str)] = &[
        (0xd508_871f, "tlbi vmalle1"),
        (0xd508_831f, "tlbi vmalle1is"),
        (0xd508_811f, "tlbi vmalle1os"),
        (0xd508_8323, "tlbi vae1is"),
        (0xd508_8340, "tlbi aside1is"),
        (0xd508_8767, "tlbi vaae1"),
        (0xd508_83be, "tlbi vale1is"),
        (0xd508_87a1, "tlbi vale1"),
        (0xd508_83e1, "tlbi vaale1is"),
        (0xd508_82a2, "tlbi rvale1is"),
        (0xd508_8222, "tlbi rvae1is"),
        (0xd508_85e2, "tlbi rvaale1os"),
        (0xd508_8662, "tlbi rvaae1"),
        (0xd508_93a2, "tlbi vale1isnxs"),
        (0xd508_92a2, "tlbi rvale1isnxs"),
        (0xd503_3b9f, "dsb ish"),
        (0xd503_3a9f, "dsb ishst"),
        (0xd503_399f, "dsb ishld"),
        (0xd503_3f9f, "dsb sy"),
        (0xd503_379f, "dsb nsh"),
        (0xd503_369f, "dsb nshst"),
        (0xd503_339f, "dsb osh"),
        (0xd503_3e9f, "dsb st"),
        (0xd503_3d9f, "dsb ld"),
        (0xd503_323f, "dsb oshnxs"),
        (0xd503_3a3f, "dsb ishnxs"),
        (0xd503_3e3f, "dsb synxs"),
        (0xd503_309f, "ssbb"),
        (0xd503_349f, "pssbb"),
    ];

    const OTHERS: &[(u32, &str)] = &[
        (0xd503_201f, "nop"),
        (0xd503_203f, "yield"),
        (0xd503_205f, "wfe"),
        (0xd503_251f, "hint #0x28"),
        (0xd503_2dff, "hint #0x6f"),
        (0xd503_3bbf, "dmb ish"),
        (0xd503_3fdf, "isb"),
        (0xd503_3f5f, "clrex"),
        (0xd503_30ff, "sb"),
        (0xd508_751f, "ic iallu"),
        (0xd50b_7e20, "dc civac, x0"),
        (0xd508_7800, "at s1e1r, x0"),
        (0xd518_2000, "msr ttbr0_el1, x0"),
        (0xd53b_d040, "mrs x0, tpidr_el0"),
        (0xd65f_03c0, "ret"),
    ];
}
