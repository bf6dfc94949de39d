//! Reads what the emulator's plugin counts: instructions on each CPU between the runner's marks.
//!
//! The plugin (crates/qemu-plugin) writes one line for each mark into a pipe. The line has the
//! counts since the last mark: `NUMBER CPU|CPU COUNT INSTRUCTION|…`. The plugin opens the pipe by
//! its name among this process's descriptors, so nothing lies in the file system. Lines are read as
//! they come, because a full pipe would stop the guest. They are put together when the guest has
//! answered, which happens after its last mark.

use crate::patience::Patience;
use needless_model::run::Round;
use needless_runner::locate;
use needless_runner::marks::Mark;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

/// The instructions of one phase, with their counts.
type Phase = BTreeMap<String, u64>;

/// The reading end of the plugin's pipe.
pub struct Tally {
    /// The argument of QEMU's `-plugin`.
    pub argument: String,
    /// Our own writing end. It stays open until the plugin has opened the pipe, too.
    door: Option<PipeWriter>,
    lines: Receiver<String>,
}

impl Tally {
    /// Finds the plugin and opens the pipe. The error says why that failed.
    pub fn open() -> Result<Tally, String> {
        let plugin = locate::find_file(locate::QEMU_PLUGIN).map_err(|places| {
            let locate::Wanted { name, variable } = locate::QEMU_PLUGIN;
            format!(
                "{name} was not found in {places}: build it with `make build`, or name it in {variable}"
            )
        })?;
        let (reader, door) = io::pipe().map_err(|error| format!("no pipe: {error}"))?;
        let pipe = format!("/proc/{}/fd/{}", std::process::id(), door.as_raw_fd());
        // A comma in a value of QEMU's options is doubled.
        let path = plugin.to_string_lossy().replace(',', ",,");
        let (sender, lines) = channel();
        std::thread::spawn(move || pass_on(reader, &sender));
        Ok(Tally { argument: format!("{path},out={pipe}"), door: Some(door), lines })
    }

    /// Called when the guest has booted. From now on the pipe ends when the emulator ends.
    pub fn close_door(&mut self) {
        self.door = None;
    }

    /// The rounds that count in the answered errand, in order, on CPUs below `cpus`.
    pub fn rounds(&self, cpus: u16, patience: &mut Patience) -> Result<Vec<Vec<Phase>>, String> {
        let mut errand = ErrandTally { cpus, ..ErrandTally::default() };
        loop {
            let line = self.next(patience).ok_or("QEMU's plugin stopped counting")?;
            let line = Line::read(&line).ok_or_else(|| format!("the plugin says `{line}`"))?;
            if line.mark == Mark::ErrandEnds {
                return Ok(errand.counted);
            }
            errand.add(&line);
        }
    }

    fn next(&self, patience: &mut Patience) -> Option<String> {
        loop {
            match self.lines.recv_timeout(patience.left()?) {
                Ok(line) => return Some(line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }
}

fn pass_on(reader: PipeReader, sender: &Sender<String>) {
    for line in BufReader::new(reader).lines().map_while(Result::ok) {
        if sender.send(line).is_err() {
            return;
        }
    }
}

/// Adds the counted instructions to each round.
pub fn attach<'a>(
    rounds: impl ExactSizeIterator<Item = &'a mut Round>,
    counted: Vec<Vec<Phase>>,
) -> Result<(), String> {
    if rounds.len() != counted.len() {
        return Err(format!("{} rounds count, the plugin saw {}", rounds.len(), counted.len()));
    }
    for (round, instructions) in rounds.zip(counted) {
        round.instructions = instructions;
    }
    Ok(())
}

/// Puts together the lines of one errand.
#[derive(Default)]
struct ErrandTally {
    cpus: u16,
    /// The phases so far of the current or last round.
    round: Vec<Phase>,
    counted: Vec<Vec<Phase>>,
}

impl ErrandTally {
    fn add(&mut self, line: &Line<'_>) {
        match line.mark {
            Mark::RoundBegins => self.round.clear(),
            Mark::Phase | Mark::RoundEnds => self.round.push(line.phase(self.cpus)),
            Mark::RoundCounts => self.counted.push(std::mem::take(&mut self.round)),
            Mark::ErrandEnds => {}
        }
    }
}

/// A line of the plugin.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    mark: Mark,
    /// CPU, count and instruction.
    counts: Vec<(u16, u64, &'a str)>,
}

impl<'a> Line<'a> {
    fn read(text: &'a str) -> Option<Line<'a>> {
        let mut parts = text.split('|');
        let (number, _cpu) = parts.next()?.split_once(' ')?;
        let counts = parts.map(|part| {
            let (cpu, rest) = part.split_once(' ')?;
            let (count, instruction) = rest.split_once(' ')?;
            Some((cpu.parse().ok()?, count.parse().ok()?, instruction))
        });
        let counts = counts.collect::<Option<_>>()?;
        Some(Line { mark: Mark::from_number(number.parse().ok()?)?, counts })
    }

    fn phase(&self, cpus: u16) -> Phase {
        let mut phase = Phase::new();
        for (_, count, instruction) in self.counts.iter().filter(|(cpu, ..)| *cpu < cpus) {
            *phase.entry((*instruction).to_owned()).or_default() += count;
        }
        phase
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn tally(lines: &[&str]) -> Tally {
        let (sender, receiver) = channel();
        lines.iter().for_each(|line| sender.send((*line).to_owned()).unwrap());
        Tally { argument: String::new(), door: None, lines: receiver }
    }

    fn soon() -> Patience {
        let mut patience = Patience::with(std::process::id());
        patience.set(Duration::from_millis(20));
        patience
    }

    #[test]
    fn phases_are_parted_and_only_rounds_that_count_are_kept() {
        let tally = tally(&[
            "121 0|0 99 tlbi vmalle1",
            "123 0|0 5 tlbi vale1is",
            "121 0|0 3 dsb ish",
            "122 0|0 1 tlbi vale1is|1 2 tlbi vale1is|2 7 dsb ish",
            "123 0",
            "124 0|0 8 dsb sy",
            "125 2",
            "125 2",
        ]);
        let one = Phase::from([("tlbi vale1is".to_owned(), 3)]);
        assert_eq!(tally.rounds(2, &mut soon()), Ok(vec![vec![one, Phase::new()]]));
        assert_eq!(tally.rounds(2, &mut soon()), Ok(vec![]), "the next errand");
        assert!(tally.rounds(2, &mut soon()).is_err(), "nobody speaks any more");
    }

    #[test]
    fn what_is_no_line_is_an_error() {
        for text in ["", "121", "9 0", "121 0|0 tlbi", "121 0|0 x tlbi vale1is", "121 0|-1 1 a"] {
            assert_eq!(Line::read(text), None, "{text}");
            assert!(tally(&[text]).rounds(2, &mut soon()).is_err());
        }
    }

    #[test]
    fn rounds_that_the_plugin_did_not_see_are_no_zeros() {
        let mut rounds = [Round::default(), Round::default()];
        assert!(attach(rounds.iter_mut(), vec![vec![Phase::new()]]).is_err());
        assert!(rounds[0].instructions.is_empty());
        attach(rounds.iter_mut(), vec![vec![Phase::new()]; 2]).unwrap();
        assert_eq!(rounds[1].instructions.len(), 1);
    }

    #[test]
    fn the_pipe_can_be_opened_by_its_name() {
        let (reader, door) = io::pipe().unwrap();
        let name = format!("/proc/{}/fd/{}", std::process::id(), door.as_raw_fd());
        let mut other = std::fs::File::options().write(true).open(name).unwrap();
        drop(door);
        io::Write::write_all(&mut other, b"125 0\n").unwrap();
        drop(other);
        assert_eq!(BufReader::new(reader).lines().map_while(Result::ok).count(), 1);
    }
}
