//! The smallest program: one page of code that ends at once.

use std::fs::File;
use std::io::{self, Write};

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text",
    ".globl needless_end_begin, needless_end_end",
    "needless_end_begin:",
    "mov eax, 231",
    "xor edi, edi",
    "syscall",
    "needless_end_end:",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".pushsection .text",
    ".globl needless_end_begin, needless_end_end",
    "needless_end_begin:",
    "mov x8, 94",
    "mov x0, 0",
    "svc 0",
    "needless_end_end:",
    ".popsection",
);

unsafe extern "C" {
    static needless_end_begin: u8;
    static needless_end_end: u8;
}

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = libc::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = libc::EM_AARCH64;

/// The headers at the beginning of the program's file.
#[repr(C)]
struct Headers {
    file: libc::Elf64_Ehdr,
    segments: [libc::Elf64_Phdr; 2],
}

/// The address at which the program is mapped.
const BASE: u64 = 0x40_0000;

/// A file in memory with a program that ends at once.
pub fn that_ends() -> io::Result<File> {
    let (begin, end) = (&raw const needless_end_begin, &raw const needless_end_end);
    // SAFETY: the instructions lie between the two symbols.
    let code = unsafe { std::slice::from_raw_parts(begin, end as usize - begin as usize) };
    let headers = headers(code.len());
    let size = size_of::<Headers>();
    // SAFETY: the structures are numbers without gaps between them.
    let headers = unsafe { std::slice::from_raw_parts((&raw const headers).cast::<u8>(), size) };
    let mut file = crate::files::memfd()?;
    file.write_all(headers)?;
    file.write_all(code)?;
    Ok(file)
}

/// The headers (elf(5)): one segment, and a stack that holds no code.
fn headers(code: usize) -> Headers {
    // SAFETY: the structures are numbers, for which 0 is a value.
    let mut headers: Headers = unsafe { std::mem::zeroed() };
    let Headers { file, segments: [program, stack] } = &mut headers;
    let size = size_of::<Headers>() as u64;
    file.e_ident[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    (file.e_type, file.e_machine, file.e_version) = (libc::ET_EXEC, MACHINE, 1);
    (file.e_entry, file.e_phoff) = (BASE + size, size_of_val(file) as u64);
    file.e_ehsize = size_of_val(file) as u16;
    (file.e_phentsize, file.e_phnum) = (size_of_val(program) as u16, 2);
    (program.p_type, program.p_flags) = (libc::PT_LOAD, libc::PF_R | libc::PF_X);
    (program.p_vaddr, program.p_align) = (BASE, 4096);
    program.p_filesz = size + code as u64;
    program.p_memsz = program.p_filesz;
    (stack.p_type, stack.p_flags) = (libc::PT_GNU_STACK, libc::PF_R | libc::PF_W);
    headers
}
