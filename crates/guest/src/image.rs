//! Reads what a kernel's image says about itself, before it is booted.
//!
//! - x86-64: the setup header of a bzImage (Documentation/arch/x86/boot.rst). Its sizes show
//!   whether the image is complete.
//! - arm64: the header of an uncompressed Image (Documentation/arch/arm64/booting.rst). If the
//!   image is also an EFI program, the sizes of its sections show that.
//!
//! Either may contain its configuration, compressed, between two marks (kernel/configs.c).

use crate::config::Config;
use crate::modules::uncompress;
use crate::platform::Arch;
use memchr::memmem;
use needless_model::foreign;
use std::path::Path;

/// The largest size of an image, in bytes.
const MOST_BYTES: u64 = 256 << 20;

/// The marks around the compressed configuration.
const CONFIG_MARKS: [&[u8]; 2] = [b"IKCFG_ST", b"IKCFG_ED"];

/// An image that an emulator can boot.
pub struct Image {
    /// The architecture that it runs on.
    pub arch: Arch,
    /// The release that `uname -r` will print, if the image says it.
    pub release: Option<String>,
    /// The contents of the file.
    pub bytes: Vec<u8>,
}

/// The beginnings of other files and their offsets, what these files are, and how to get an image.
const OTHERS: [(usize, &[u8], &str); 8] = [
    (0, b"\x7fELF", "an ELF file, as vmlinux is"),
    (0, b"\x1f\x8b", "compressed with gzip: unpack it"),
    (0, b"\x28\xb5\x2f\xfd", "compressed with zstd: unpack it"),
    (0, b"\xfd7zXZ", "compressed with xz: unpack it"),
    (0, b"!<arch>", "an archive, as Debian's packages are: `dpkg-deb -x` unpacks it"),
    (0, b"\x27\x05\x19\x56", "an image for U-Boot"),
    (4, b"zimg", "a compressed EFI image (CONFIG_EFI_ZBOOT)"),
    (0x38, b"RSC\x05", "a RISC-V kernel; guests are x86-64 or arm64"),
];

impl Image {
    /// Reads an image. The error says what is wrong with it.
    pub fn read(path: &Path) -> Result<Image, String> {
        Image::of(needless_files::read(path, MOST_BYTES).map_err(|error| error.to_string())?)
    }

    fn of(bytes: Vec<u8>) -> Result<Image, String> {
        if let Some((_, _, what)) = OTHERS
            .iter()
            .find(|(at, magic, _)| bytes.get(*at..).is_some_and(|b| b.starts_with(magic)))
        {
            return Err(format!("it is {what}"));
        }
        if has(&bytes, 0x202, b"HdrS") && has(&bytes, 0x1fe, &[0x55, 0xaa]) {
            return Image::of_x86(bytes);
        }
        if has(&bytes, 0x38, b"ARM\x64") {
            check_sections(&bytes)?;
            let release = arm64_release(&bytes);
            return Ok(Image { arch: Arch::Arm64, release, bytes });
        }
        Err("it is no kernel image: neither an x86-64 bzImage nor an arm64 Image".to_owned())
    }

    fn of_x86(bytes: Vec<u8>) -> Result<Image, String> {
        const LOADED_HIGH: u64 = 1;
        const KERNEL_64: u64 = 1;
        let cut = || "it is truncated: its header ends too soon".to_owned();
        let field = |at: usize, size: usize| number(&bytes, at, size).ok_or_else(cut);
        let version = field(0x206, 2)?;
        // Version 2.12 of the header is from 2013. Older versions do not show whether the kernel is
        // a 64-bit one.
        if version < 0x20c || field(0x211, 1)? & LOADED_HIGH == 0 {
            return Err("it is an x86 kernel older than 3.8, or no bzImage".to_owned());
        }
        if field(0x236, 2)? & KERNEL_64 == 0 {
            return Err("it is an x86 kernel of 32 bits; guests have 64 (CONFIG_64BIT)".to_owned());
        }
        let sectors = match field(0x1f1, 1)? {
            0 => 4,
            sectors => sectors,
        };
        whole(&bytes, (sectors + 1) * 512 + field(0x1f4, 4)? * 16)?;
        let name = usize::try_from(field(0x20e, 2)?).unwrap_or(0) + 0x200;
        Ok(Image { arch: Arch::X86_64, release: bytes.get(name..).and_then(first_word), bytes })
    }

    /// The configuration, if the image contains it and it can be unpacked.
    pub fn config(&self) -> Option<Config> {
        let [from, to] = CONFIG_MARKS;
        let kernel = match self.arch {
            Arch::Arm64 => None,
            Arch::X86_64 => Some(uncompress(self.payload()?).ok()?),
        };
        let kernel = kernel.as_deref().unwrap_or(&self.bytes);
        let start = memmem::find(kernel, from)? + from.len();
        let rest = kernel.get(start..)?;
        let text = uncompress(rest.get(..memmem::find(rest, to)?)?).ok()?;
        Some(Config::read(&String::from_utf8_lossy(&text)))
    }

    /// The compressed kernel of a bzImage, which follows the setup code.
    fn payload(&self) -> Option<&[u8]> {
        let field = |at, size| usize::try_from(number(&self.bytes, at, size)?).ok();
        let setup = (field(0x1f1, 1)?.max(1) + 1) * 512;
        let start = setup.checked_add(field(0x248, 4)?)?;
        self.bytes.get(start..start.checked_add(field(0x24c, 4)?)?)
    }
}

fn has(bytes: &[u8], at: usize, wanted: &[u8]) -> bool {
    bytes.get(at..).is_some_and(|bytes| bytes.starts_with(wanted))
}

/// A little-endian number of up to eight bytes.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Refuses a file that is shorter than its header says.
fn whole(bytes: &[u8], size: u64) -> Result<(), String> {
    match bytes.len() as u64 {
        found if found < size => {
            Err(format!("it is truncated: it has {found} bytes, but its header says {size}"))
        }
        _ => Ok(()),
    }
}

/// Refuses an EFI program with a section that is cut off. A file that is no EFI program passes.
fn check_sections(bytes: &[u8]) -> Result<(), String> {
    let header = number(bytes, 0x3c, 4).and_then(|at| usize::try_from(at).ok());
    let Some(header) = header.filter(|at| has(bytes, *at, b"PE\0\0")) else { return Ok(()) };
    let cut = || "it is truncated: its header ends too soon".to_owned();
    let field = |at, size| number(bytes, at, size).ok_or_else(cut);
    let table = header + 24 + field(header + 20, 2)? as usize;
    for section in 0..field(header + 6, 2)? {
        let at = table + 40 * section as usize;
        whole(bytes, field(at + 16, 4)? + field(at + 20, 4)?)?;
    }
    Ok(())
}

/// The first word of a text that ends with a zero.
fn first_word(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| matches!(byte, 0 | b' ' | b'\n'))?;
    let word = std::str::from_utf8(bytes.get(..end)?).ok()?;
    word.starts_with(|c: char| c.is_ascii_digit()).then(|| foreign::line(word).into_owned())
}

/// The release in the banner of an uncompressed kernel.
fn arm64_release(bytes: &[u8]) -> Option<String> {
    const BANNER: &[u8] = b"Linux version ";
    memmem::find_iter(bytes, BANNER).find_map(|at| first_word(bytes.get(at + BANNER.len()..)?))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn with_config(config: &str) -> Vec<u8> {
        let [from, to] = CONFIG_MARKS;
        [b"code", from, &gzip(config.as_bytes()), to, b"more"].concat()
    }

    /// A bzImage with all fields of a real one, and no code.
    pub fn bzimage(release: &str, config: &str) -> Vec<u8> {
        let payload = gzip(&with_config(config));
        let mut bytes = vec![0; 1024];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0x1f1, &[1]);
        put(0x1f4, &(payload.len().div_ceil(16) as u32).to_le_bytes());
        put(0x1fe, &[0x55, 0xaa]);
        put(0x202, b"HdrS");
        put(0x206, &0x20f_u16.to_le_bytes());
        put(0x20e, &0x100_u16.to_le_bytes());
        put(0x211, &[1]);
        put(0x236, &1_u16.to_le_bytes());
        put(0x24c, &(payload.len() as u32).to_le_bytes());
        put(0x300, format!("{release} (me@here) #1 SMP\0").as_bytes());
        bytes.extend(&payload);
        bytes.resize(bytes.len().next_multiple_of(16), 0);
        bytes
    }

    fn arm64(config: &str) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        bytes[0x38..0x3c].copy_from_slice(b"ARM\x64");
        bytes[0x3c] = 0x40;
        bytes[0x40..0x44].copy_from_slice(b"PE\0\0");
        bytes[0x46] = 1;
        // Its only section is as long as the file.
        let text = [b"Linux version %s Linux version 6.12.9-mine (x)", &with_config(config)[..]];
        bytes.extend(text.concat());
        let size = bytes.len() as u32;
        bytes[0x58 + 16..0x58 + 20].copy_from_slice(&size.to_le_bytes());
        bytes
    }

    fn refused(bytes: Vec<u8>) -> String {
        Image::of(bytes).map(|image| image.arch).unwrap_err()
    }

    #[test]
    fn images_say_what_they_are() {
        let config = "CONFIG_SWAP=y\nCONFIG_ZRAM=m\n# CONFIG_NUMA is not set\n";
        for (bytes, arch, release) in [
            (bzimage("7.3.4+", config), Arch::X86_64, "7.3.4+"),
            (arm64(config), Arch::Arm64, "6.12.9-mine"),
        ] {
            let image = Image::of(bytes).unwrap();
            assert_eq!((image.arch, image.release.as_deref()), (arch, Some(release)));
            let config = image.config().unwrap();
            assert_eq!((config.value("SWAP"), config.value("ZRAM")), (Some('y'), Some('m')));
            assert_eq!(config.value("NUMA"), None);
        }
        let hostile = Image::of(bzimage("6.1\u{1b}[2J\u{7}\u{9b}", "")).unwrap();
        assert_eq!(hostile.release.as_deref(), Some("6.1\\u{1b}[2J\\u{7}\\u{9b}"));
        let mut silent = Image::of(bzimage("6.1.0", "")).unwrap();
        silent.bytes.truncate(1030);
        assert!(silent.config().is_none(), "what cannot be unpacked is not known");
    }

    #[test]
    fn what_is_no_image_is_told_apart() {
        assert!(refused(Vec::new()).contains("no kernel image"));
        assert!(refused(vec![0; 4096]).contains("no kernel image"));
        for (at, magic, what) in OTHERS {
            let mut bytes = vec![0; 64];
            bytes[at..at + magic.len()].copy_from_slice(magic);
            assert!(refused(bytes).contains(what));
        }
        let mut old = bzimage("6.1", "");
        old[0x236] = 0;
        assert!(refused(old).contains("32 bits"));
        let mut older = bzimage("2.6", "");
        older[0x206..0x208].copy_from_slice(&[9, 2]);
        assert!(refused(older).contains("older"));
    }

    #[test]
    fn whatever_is_cut_off_is_noticed() {
        let (x86, arm) = (bzimage("6.1", "CONFIG_SWAP=y"), arm64("CONFIG_SWAP=y"));
        for cut in 0..x86.len() {
            assert!(Image::of(x86[..cut].to_vec()).is_err(), "{cut} bytes of {}", x86.len());
        }
        for cut in 0x40..arm.len() {
            // Without the mark of an EFI program, nothing shows that the file is cut off.
            let told = Image::of(arm[..cut].to_vec()).err();
            assert_eq!(told.is_some(), cut >= 0x44, "{cut} bytes of {}", arm.len());
        }
    }

    #[test]
    fn only_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let read = |path: &Path| Image::read(path).map(|image| image.arch).unwrap_err();
        assert!(read(folder.path()).contains("a directory"));
        assert!(read(Path::new("/dev/zero")).contains("a device"));
        // Files of /proc have the size 0, and may have no end.
        assert!(read(Path::new("/proc/self/pagemap")).contains("more than 256 MiB"));
        assert!(read(&folder.path().join("bzImage")).contains("No such file"));
    }
}
