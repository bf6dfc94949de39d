//! Checks which folios the pages of a file belong to, so that no run shows figures for other folios
//! than the scenario means.
//!
//! The file is mapped for a moment, by a mapping whose accesses do not count as use of its pages
//! (`MADV_SEQUENTIAL`: mm/memory.c:zap_present_folio_ptes, vma_has_recency).

use needless_model::program::FileSpec;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Bytes of a page.
const PAGE: usize = 4096;

/// Bits of an entry of pagemap: the page is present, and its frame number
/// (Documentation/admin-guide/mm/pagemap.rst).
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;

/// Bit of an entry of kpageflags: a page of a large folio that is not its first
/// (`KPF_COMPOUND_TAIL`).
const TAIL: u64 = 1 << 16;

/// The first kernel in which a write to a file on ext4 makes large folios
/// (fs/ext4/inode.c:ext4_set_inode_mapping_order).
const LARGE_SINCE: (u32, u32) = (6, 16);

/// Checks that a file on ext4 has the folios that its writes make on this kernel: one for each
/// page, or large ones. If it has others, the text says what is wrong.
pub fn verify(file: &File, spec: &FileSpec) -> io::Result<Result<(), String>> {
    let found = firsts(file, spec.pages as usize)?;
    Ok(compared(spec, release()? >= LARGE_SINCE, &found))
}

/// Compares with the expected folios. `found` says for each page whether a folio begins with it;
/// `large`: whether writes make large folios.
fn compared(spec: &FileSpec, large: bool, found: &[bool]) -> Result<(), String> {
    let mut expected = vec![!large; spec.pages as usize];
    for (first, _) in spec.large_folios() {
        expected[first as usize] = true;
    }
    let differs = expected.iter().zip(found).position(|(expected, found)| expected != found);
    differs.map_or(Ok(()), |page| {
        let word = |first: bool| if first { "begins a folio" } else { "continues a folio" };
        let (found, expected) = (word(found[page]), word(expected[page]));
        Err(format!(
            "page {page} {found}, although a write of {} pages makes folios in which it {expected}: memory may be too fragmented; write 1 to /proc/sys/vm/compact_memory, or use a smaller write-pages=",
            spec.write_pages
        ))
    })
}

/// Major and minor version number of this kernel.
fn release() -> io::Result<(u32, u32)> {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => Err(io::Error::other(format!("release {release} is no number"))),
    }
}

/// For each page of the file: whether a folio begins with it.
fn firsts(file: &File, pages: usize) -> io::Result<Vec<bool>> {
    let open = |path: &str| {
        let told = |error| {
            io::Error::other(format!(
                "{path}, which says what its folios are: {error}; run as root"
            ))
        };
        File::open(path).map_err(told)
    };
    let (map, flags) = (open("/proc/self/pagemap")?, open("/proc/kpageflags")?);
    let (size, prot) = (pages * PAGE, libc::PROT_READ);
    // SAFETY: the mapping is new; nothing else refers to it.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), size, prot, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `at` and `size` are those of the mapping above.
    let advised = unsafe { libc::madvise(at, size, libc::MADV_SEQUENTIAL) };
    let read = |from: &File, place: u64| {
        let mut entry = [0; 8];
        from.read_exact_at(&mut entry, place * 8).map(|()| u64::from_ne_bytes(entry))
    };
    let first = |page: usize| {
        let byte = at.cast::<u8>().wrapping_add(page * PAGE);
        // SAFETY: the page is mapped, and the file is long enough to have it.
        unsafe { byte.read_volatile() };
        let entry = read(&map, (byte as usize / PAGE) as u64)?;
        if entry & PRESENT == 0 || entry & FRAME == 0 {
            return Err(io::Error::other(
                "/proc/self/pagemap does not show frame numbers: that needs CAP_SYS_ADMIN; run as root",
            ));
        }
        Ok(read(&flags, entry & FRAME)? & TAIL == 0)
    };
    let firsts = if advised == 0 {
        (0..pages).map(first).collect()
    } else {
        Err(io::Error::last_os_error())
    };
    // SAFETY: `at` and `size` are those of the mapping above.
    unsafe { libc::munmap(at, size) };
    firsts
}

#[cfg(test)]
mod tests {
    use super::*;
    use needless_model::program::{Content, FileSystem};

    #[test]
    fn another_folio_than_the_writes_make_is_told() {
        let spec = FileSpec {
            name: "data".to_owned(),
            pages: 6,
            fs: FileSystem::Ext4,
            content: Content::Data,
            write_pages: 4,
        };
        let large = [true, false, false, false, true, false];
        assert_eq!(compared(&spec, true, &large), Ok(()));
        assert_eq!(compared(&spec, false, &[true; 6]), Ok(()));
        let told = compared(&spec, true, &[true; 6]).unwrap_err();
        assert!(
            told.contains("page 1 begins a folio") && told.contains("compact_memory"),
            "{told}"
        );
        let told = compared(&spec, false, &large).unwrap_err();
        assert!(told.contains("page 1 continues a folio"), "{told}");
    }
}
