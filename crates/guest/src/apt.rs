//! Reads Debian's archive through apt, with a state of its own.
//!
//! The private configuration lies in the cache. From the machine's configuration it takes only the
//! addresses of the archive and the proxies: no hooks, no relaxed checks. Its rows name
//! neighbouring releases. Each row is signed by the machine's own keyring of the Debian archive. So
//! apt verifies every list and, through the lists, every package. The system's own state is neither
//! read nor written. Each architecture has a state of its own, whose lists cover only that
//! architecture.

use crate::cache::{Cache, at};
use crate::error::FetchError;
use crate::platform::Arch;
use crate::watched;
use needless_model::foreign;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.pgp",
    "/usr/share/keyrings/debian-archive-keyring.gpg",
];

/// Releases that the machine's own row may name.
const RELEASES: [&str; 8] =
    ["bullseye", "bookworm", "trixie", "forky", "stable", "oldstable", "testing", "sid"];

/// Suites of the main archive that have kernels.
const SUITES: [&str; 4] = ["bullseye", "bookworm", "trixie", "trixie-backports"];

/// Suites of the security archive that have kernels.
const SECURITY_SUITES: [&str; 3] = ["bullseye-security", "bookworm-security", "trixie-security"];

/// The folders and files of apt's state, inside our folder.
const PLACES: [(&str, &str); 5] = [
    ("Dir::Etc::sourcelist", "sources.list"),
    ("Dir::State", "state"),
    ("Dir::State::status", "status"),
    ("Dir::State::lists", "lists"),
    ("Dir::Cache", "cache"),
];
/// The system's words for a full disk, in apt's complaints.
const NO_SPACE: &str = "No space left on device";

/// apt with a state of its own. Only one process at a time uses it.
pub struct Apt {
    arch: Arch,
    folder: PathBuf,
    _lock: File,
}

impl Apt {
    /// Waits for the lock and writes the configuration anew.
    pub fn open(cache: &Cache, arch: Arch) -> Result<Apt, FetchError> {
        let name = arch.suffix().map_or("apt".to_owned(), |suffix| format!("apt-{suffix}"));
        let folder = cache.folder(&name)?;
        // All architectures share one lock, because its holder may tidy the cache.
        let path = cache.folder("apt")?.join("lock");
        let lock = File::create(&path).map_err(at(&path))?;
        watched::lock(&lock, &path)?;
        let apt = Apt { arch, folder, _lock: lock };
        for name in ["lists/partial", "cache/archives/partial", "state", "none"] {
            let path = apt.folder.join(name);
            fs::create_dir_all(&path).map_err(at(&path))?;
        }
        apt.write("status", "")?;
        apt.write("sources.list", &sources(&apt.addresses()?, arch))?;
        apt.write("apt.conf", &apt.configuration(&proxies()?))?;
        cache.sweep();
        Ok(apt)
    }

    /// The architecture of its packages.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Updates the lists, and returns apt's complaints.
    pub fn update(&self) -> Result<String, FetchError> {
        let mut command = self.command("apt-get");
        let updated = watched::run(command.args(["update", "-q"]), &self.folder);
        let complaint = complaints(&updated.inspect_err(|_| self.clean())?);
        self.has_space(&complaint).inspect_err(|_| self.clean())?;
        Ok(complaint)
    }

    /// Fails if a full disk has cut off the lists or a download. apt itself goes on with what it
    /// has, and at most complains.
    fn has_space(&self, complaint: &str) -> Result<(), FetchError> {
        match complaint.contains(NO_SPACE) || watched::is_full(&self.folder) {
            true => Err(FetchError::Full { folder: self.folder.clone() }),
            false => Ok(()),
        }
    }

    /// Whether any lists exist, however old.
    pub fn has_lists(&self) -> bool {
        let entries = fs::read_dir(self.folder.join("lists")).into_iter().flatten().flatten();
        entries.into_iter().any(|e| e.file_name().to_string_lossy().contains("_Packages"))
    }

    /// The names of all packages that start with `prefix`.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>, FetchError> {
        let output = self.ask(self.command("apt-cache").args(["pkgnames", prefix]))?;
        Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
    }

    /// The records of the newest versions of these packages.
    pub fn records(&self, names: &[String]) -> Result<Vec<Record>, FetchError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut command = self.command("apt-cache");
        let output = self.ask(command.args(["show", "--no-all-versions"]).args(names))?;
        Ok(records(&String::from_utf8_lossy(&output.stdout)))
    }

    /// Downloads packages (`name=version`) into an empty folder, and returns the files.
    pub fn download(&self, packages: &[String]) -> Result<Vec<PathBuf>, FetchError> {
        let folder = self.folder.join("download");
        self.clean();
        fs::create_dir(&folder).map_err(at(&folder))?;
        give_to_apt(&folder);
        let mut command = self.command("apt-get");
        command.current_dir(&folder).args(["download", "-q"]).args(packages);
        let output = watched::run(&command, &self.folder).inspect_err(|_| self.clean())?;
        if !output.status.success() {
            let detail = complaints(&output);
            let full = self.has_space(&detail);
            self.clean();
            full?;
            return Err(FetchError::Download { detail });
        }
        let entries = fs::read_dir(&folder).map_err(at(&folder))?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        Ok(files)
    }

    /// Removes all downloads, whole or in part, also those of an interrupted fetch.
    pub fn clean(&self) {
        let _ = fs::remove_dir_all(self.folder.join("download"));
        let parts = fs::read_dir(self.folder.join("lists/partial")).into_iter().flatten().flatten();
        for part in parts {
            let _ = fs::remove_file(part.path());
        }
    }

    /// Queries apt's lists. A failed query is an error, unless it printed something.
    fn ask(&self, command: &mut Command) -> Result<Output, FetchError> {
        let output = run(command)?;
        if output.status.success() || !output.stdout.is_empty() {
            return Ok(output);
        }
        let detail = complaints(&output);
        self.has_space(&detail)?;
        Err(FetchError::Lists { detail })
    }

    fn write(&self, name: &str, text: &str) -> Result<(), FetchError> {
        let path = self.folder.join(name);
        fs::write(&path, text).map_err(at(&path))
    }

    /// The addresses from which the machine's own apt gets Debian. With an empty folder of lists,
    /// apt prints what it would fetch, whether or not it ever did.
    fn addresses(&self) -> Result<Addresses, FetchError> {
        let none = self.folder.join("none");
        let output = run(Command::new("apt-get")
            .env("LC_ALL", "C")
            .arg("-o")
            .arg(assigned("Dir::State::lists", &none.join("")))
            .args(["-o", "Debug::NoLocking=true", "update", "--print-uris"]))?;
        let text = String::from_utf8_lossy(&output.stdout);
        Addresses::read(&text).ok_or_else(|| FetchError::NoArchive {
            found: match text.lines().next() {
                Some(row) => format!("its first row is {}", foreign::line(row)),
                None => "it names nothing".to_owned(),
            },
        })
    }

    fn configuration(&self, proxies: &str) -> String {
        let debian = self.arch.platform().debian;
        format!(
            "APT::Architecture \"{debian}\";\n\
             APT::Architectures {{ \"{debian}\"; }};\n\
             Acquire::Languages \"none\";\n\
             Dir::Etc::main \"/dev/null\";\n\
             Dir::Etc::parts \"/dev/null\";\n\
             Dir::Etc::sourceparts \"/dev/null\";\n\
             Dir::Etc::preferences \"/dev/null\";\n\
             Dir::Etc::preferencesparts \"/dev/null\";\n\
             {proxies}"
        )
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.folder.join("apt.conf")).env("LC_ALL", "C");
        for (name, place) in PLACES {
            command.arg("-o").arg(assigned(name, &self.folder.join(place)));
        }
        command
    }
}

/// A setting on apt's command line. apt takes it as it is there. In a file, apt.conf(5) has no way
/// to write a quote in a value.
fn assigned(name: &str, path: &Path) -> OsString {
    let mut word = OsString::from(name);
    word.push("=");
    word.push(path);
    word
}

/// The addresses of Debian's archives.
#[derive(Debug, PartialEq, Eq)]
struct Addresses {
    main: String,
    security: Option<String>,
}

impl Addresses {
    /// Reads lines such as `'http://…/debian/dists/bookworm/InRelease' …`.
    fn read(text: &str) -> Option<Addresses> {
        let rows = || {
            text.lines().filter_map(|line| {
                let address = line.strip_prefix('\'')?.split('\'').next()?;
                address.strip_suffix("/InRelease")?.rsplit_once("/dists/")
            })
        };
        let main = rows().find(|(_, suite)| RELEASES.contains(suite))?;
        let security = rows().find(|(_, suite)| {
            let release = suite.strip_suffix("-security").or(suite.strip_suffix("/updates"));
            release.is_some_and(|release| RELEASES.contains(&release))
        });
        Some(Addresses {
            main: main.0.to_owned(),
            security: security.map(|(address, _)| address.to_owned()),
        })
    }
}

fn sources(addresses: &Addresses, arch: Arch) -> String {
    let debian = arch.platform().debian;
    let keyring = KEYRINGS.iter().find(|path| Path::new(path).exists());
    let signed = keyring.map_or(String::new(), |path| format!(" signed-by={path}"));
    let row = |address: &str, suite: &str| {
        format!("deb [arch={debian}{signed}] {address} {suite} main\n")
    };
    let main = SUITES.iter().map(|suite| row(&addresses.main, suite));
    let security = addresses.security.iter();
    main.chain(security.flat_map(|at| SECURITY_SUITES.iter().map(move |suite| row(at, suite))))
        .collect()
}

/// The machine's settings for network access: proxies, and the certificates that they need. This
/// includes no setting that decides which archives are trusted.
fn proxies() -> Result<String, FetchError> {
    let output = run(Command::new("apt-config").env("LC_ALL", "C").arg("dump"))?;
    Ok(only_proxies(&String::from_utf8_lossy(&output.stdout)))
}

fn only_proxies(text: &str) -> String {
    let wanted = |line: &&str| {
        let name = line.split([' ', '"']).next().unwrap_or_default().to_ascii_lowercase();
        let way = ["acquire::http::", "acquire::https::"].iter().find_map(|p| name.strip_prefix(p));
        way.is_some_and(|rest| rest.contains("proxy") || rest == "cainfo" || rest == "capath")
    };
    text.lines().filter(wanted).map(|line| format!("{line}\n")).collect()
}

/// Makes the user `_apt` the owner of a folder, because apt downloads as that user if it runs as
/// root. If `_apt` cannot reach the folder, apt says so and downloads as root. It checks the
/// signatures in any case.
fn give_to_apt(folder: &Path) {
    if rustix::process::geteuid().is_root() {
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let id = users.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some("_apt")).then(|| fields.nth(1)?.parse().ok())?
        });
        let _ = std::os::unix::fs::chown(folder, id, None);
    }
}

fn run(command: &mut Command) -> Result<Output, FetchError> {
    command.output().map_err(|error| FetchError::Program {
        program: foreign::path(command.get_program()),
        error,
    })
}

/// apt's complaints, in its own words, on one line.
fn complaints(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = text.lines().filter(|line| line.starts_with("E:") || line.starts_with("W: Failed"));
    let lines: Vec<&str> = lines.collect();
    match lines.is_empty() && !output.status.success() {
        true => foreign::line(text.lines().last().unwrap_or("no reason is given")).into_owned(),
        false => foreign::line(&lines.join("; ")).into_owned(),
    }
}

/// The fields of a package's record.
pub type Record = BTreeMap<String, String>;

/// Reads records, which empty lines separate. Continuation lines are left out.
fn records(text: &str) -> Vec<Record> {
    text.split("\n\n")
        .map(|paragraph| {
            let fields = paragraph.lines().filter(|line| !line.starts_with([' ', '\t']));
            fields
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
                .collect()
        })
        .filter(|record: &Record| record.contains_key("Package"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_debian_rows() {
        let text = "'http://x.test/extra/dists/stable-extra/InRelease' x 0 \n\
                    'http://m.test/debian/dists/trixie/InRelease' m 0 \n\
                    'http://s.test/sec/dists/trixie-security/InRelease' s 0 \n\
                    'http://m.test/debian/dists/trixie/main/binary-amd64/Packages.xz' m 0 \n";
        let addresses = Addresses::read(text).unwrap();
        assert_eq!(addresses.main, "http://m.test/debian");
        assert_eq!(addresses.security.as_deref(), Some("http://s.test/sec"));
        let sources = sources(&addresses, Arch::Arm64);
        assert_eq!(sources.lines().count(), SUITES.len() + SECURITY_SUITES.len());
        assert!(!sources.contains("trusted") && sources.contains("m.test/debian bullseye main"));
        assert!(sources.lines().all(|line| line.starts_with("deb [arch=arm64")), "{sources}");
        assert_eq!(Addresses::read("'http://u.test/ubuntu/dists/noble/InRelease' u 0"), None);
    }

    #[test]
    fn only_ways_out_are_taken_over() {
        let text = "Acquire::Check-Valid-Until \"false\";\n\
                    Acquire::http::Proxy \"http://p.test:3128\";\n\
                    Acquire::http::Proxy::h.test \"DIRECT\";\n\
                    Acquire::https::CaInfo \"/etc/ca.pem\";\n\
                    Acquire::https::Verify-Peer \"false\";\n\
                    APT::Get::AllowUnauthenticated \"true\";\n\
                    DPkg::Post-Invoke:: \"rm Acquire::http::Proxy\";\n";
        let kept = only_proxies(text);
        assert_eq!(kept.lines().count(), 3, "{kept}");
        assert!(!kept.contains("false") && !kept.contains("true"));
    }

    #[test]
    fn records_are_read_field_by_field() {
        let found = records("Package: a\nVersion: 1\nDescription: x\n more: y\n\nPackage: b\n\n\n");
        assert_eq!(found.len(), 2);
        assert_eq!(found[0]["Version"], "1");
        assert!(!found[0].contains_key(" more"));
    }
}
