//! A QEMU TCG plugin that counts how an arm64 guest invalidates its TLBs.
//!
//! When QEMU translates a block, the plugin looks for TLB invalidations, barriers (`DSB`) and the
//! runner's marks ([`decode`]). It counts executions for each virtual CPU ([`tally`]). At each mark
//! it writes one line to the pipe that its argument `out=` names:
//! `NUMBER CPU|CPU COUNT INSTRUCTION|…`. The line has the number of the mark, the CPU that executed
//! the mark, and what each CPU has executed since the last mark.
//!
//! The plugin knows nothing about rounds or scenarios. `needless` puts the lines together.
//!
//! Licence: GPL-2.0-or-later, unlike the rest of the project; see LICENSE.
#![allow(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "it runs inside of QEMU and has nothing but its standard error"
)]

mod api;
mod decode;
mod tally;

use api::{Api, Block, Info};
use decode::Meaning;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;
use tally::{Counter, Tally};

/// The data that the callbacks share.
struct Plugin {
    api: Api,
    tally: Tally,
}

static PLUGIN: OnceLock<Plugin> = OnceLock::new();

/// QEMU calls this when it has loaded the plugin. Any result but 0 ends QEMU.
///
/// # Safety
/// QEMU's interface guarantees that `info` and the `argc` strings of `argv` are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU guarantees that these pointers are valid.
    let (info, arguments) = unsafe { (&*info, arguments(argc, argv)) };
    match start(info, &arguments) {
        Ok(plugin) => {
            let api = &PLUGIN.get_or_init(|| plugin).api;
            // SAFETY: the function has the signature that QEMU expects and lives as long as QEMU.
            unsafe { (api.on_translation)(id, translated) };
            0
        }
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "needless' QEMU plugin: {why}");
            1
        }
    }
}

/// The plugin's arguments, `name=value`.
///
/// # Safety
/// The `argc` strings of `argv` are valid.
unsafe fn arguments(argc: c_int, argv: *const *const c_char) -> Vec<String> {
    let count = usize::try_from(argc).unwrap_or(0);
    // SAFETY: the caller guarantees that the string is valid.
    let text = |at| unsafe { CStr::from_ptr(*argv.add(at)) };
    (0..count).map(|at| text(at).to_string_lossy().into_owned()).collect()
}

fn start(info: &Info, arguments: &[String]) -> Result<Plugin, String> {
    let cpus = info.cpus()?;
    let path = arguments.iter().find_map(|argument| argument.strip_prefix("out="));
    let path = path.ok_or("there is no argument out=PIPE")?;
    let out = File::options().write(true).open(path).map_err(|why| format!("{path}: {why}"))?;
    Ok(Plugin { api: Api::find(info)?, tally: Tally::new(cpus, out) })
}

/// QEMU has translated a block: registers callbacks for the instructions in it that matter.
extern "C" fn translated(_id: u64, block: *mut Block) {
    let Some(Plugin { api, tally }) = PLUGIN.get() else { return };
    for instruction in api.instructions(block) {
        let Some(meaning) = api.word(instruction).and_then(decode::decode) else { continue };
        match meaning {
            Meaning::Mark(number) => {
                api.on_execution(instruction, marked, usize::from(number) as *mut c_void);
            }
            Meaning::Counted(name) => {
                let counter: *const Counter = tally.counter(&name);
                api.on_execution(instruction, executed, counter.cast_mut().cast());
            }
        }
    }
}

/// QEMU is about to execute an instruction that is counted.
extern "C" fn executed(cpu: c_uint, counter: *mut c_void) {
    // SAFETY: `translated` passed a counter, and counters are never freed.
    let counter = unsafe { &*counter.cast_const().cast::<Counter>() };
    counter.add(cpu as usize);
}

/// QEMU is about to execute a mark.
extern "C" fn marked(cpu: c_uint, number: *mut c_void) {
    if let Some(plugin) = PLUGIN.get() {
        plugin.tally.mark(number as usize, cpu);
    }
}
