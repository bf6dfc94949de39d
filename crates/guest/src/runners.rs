//! The runner's binaries: one for the guest, as its `/init`, and one for this machine, as the guard
//! of the emulator. If the guest has this machine's architecture, they are the same file.

use crate::error::GuestError;
use crate::platform::{Arch, Platform};
use needless_model::foreign;
use needless_runner::locate::{self, Wanted};
use std::path::{Path, PathBuf};

/// The paths of both binaries.
pub struct Runners {
    /// The binary that runs on this machine.
    pub guard: PathBuf,
    /// The binary that runs in the guest.
    pub init: PathBuf,
}

/// Finds both binaries. `named`: the path of the guest's binary, if it was given.
pub fn find(platform: &Platform, named: Option<&Path>) -> Result<Runners, GuestError> {
    let wanted = match platform.arch {
        _ if platform.is_native() => locate::RUNNER,
        Arch::Arm64 => locate::ARM64_RUNNER,
        // No recipe builds the x86-64 runner on another machine.
        Arch::X86_64 => {
            let what = "x86-64 guests need an x86-64 machine".to_owned();
            return Err(GuestError::Unsupported { what });
        }
    };
    let init = named.map_or_else(|| located(wanted), |path| Ok(path.to_owned()))?;
    check(&init, platform)?;
    let guard = if platform.is_native() { init.clone() } else { located(locate::RUNNER)? };
    Ok(Runners { guard, init })
}

fn located(wanted: Wanted) -> Result<PathBuf, GuestError> {
    let Wanted { name, variable } = wanted;
    locate::find_file(wanted).map_err(|places| GuestError::RunnerMissing { name, variable, places })
}

/// Checks that a binary is static and of the guest's architecture. A guest has no dynamic linker
/// and no other file.
fn check(path: &Path, platform: &Platform) -> Result<(), GuestError> {
    use object::read::elf::{ElfFile64, ProgramHeader};
    let bad = |what: String| GuestError::Runner { what: format!("{} {what}", foreign::path(path)) };
    let bytes = std::fs::read(path).map_err(|error| bad(format!("cannot be read: {error}")))?;
    let file = ElfFile64::<object::Endianness>::parse(&*bytes)
        .map_err(|error| bad(format!("is no program: {error}")))?;
    if file.elf_header().e_machine.get(file.endian()) != platform.elf_machine {
        return Err(bad(format!("is no {} program", platform.arch)));
    }
    let mut headers = file.elf_program_headers().iter();
    if headers.any(|header| header.p_type(file.endian()) == object::elf::PT_INTERP) {
        return Err(bad("is linked dynamically; a guest has no other file".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_static_program_of_the_guests_architecture_will_do() {
        let test = std::env::current_exe().unwrap();
        let refused = |path: &Path, arch: Arch| check(path, arch.platform()).unwrap_err();
        let other = Arch::ALL.into_iter().find(|arch| !arch.platform().is_native()).unwrap();
        assert!(refused(&test, other).to_string().contains("is no"));
        let native = Arch::ALL.into_iter().find(|arch| arch.platform().is_native()).unwrap();
        assert!(refused(&test, native).to_string().contains("linked dynamically"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert!(refused(&source, native).to_string().contains("is no program"));
    }
}
