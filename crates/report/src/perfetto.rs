//! What `needless stat` saw, event by event, as a Perfetto trace. It has a track for each CPU and
//! each thread, faults with their class, interrupts with their cause, and arrows from their
//! senders.
//!
//! The messages have only the fields of Perfetto's protos/perfetto/trace that are used here, by
//! their field numbers.

use needless_watch::fold::Task;
use needless_watch::timeline::Moment;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// A packet of a trace (trace_packet.proto).
#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

/// A trace (trace.proto): packets one after the other, so that traces can be written piece by
/// piece.
#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<Packet>,
}

/// An event of a track (track_event/track_event.proto).
#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(enumeration = "Kind", optional, tag = "9")]
    r#type: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    terminating_flow_ids: Vec<u64>,
}

/// The kind of an event (TrackEvent.Type).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum Kind {
    Unspecified = 0,
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
}

/// An argument of an event (track_event/debug_annotation.proto).
#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
    #[prost(uint64, optional, tag = "7")]
    pointer_value: Option<u64>,
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
}

/// A track (track_event/track_descriptor.proto).
#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    thread: Option<ThreadDescriptor>,
}

/// A process (track_event/process_descriptor.proto).
#[derive(Clone, PartialEq, Message)]
struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    process_name: Option<String>,
}

/// A thread (track_event/thread_descriptor.proto).
#[derive(Clone, PartialEq, Message)]
struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    tid: Option<i32>,
    #[prost(string, optional, tag = "5")]
    thread_name: Option<String>,
}

/// A track of the trace.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Track {
    Cpu(u16),
    Thread(i32),
    Process(i32),
}

impl Track {
    /// The bits that keep numbers of different kinds apart.
    fn uuid(self) -> u64 {
        match self {
            Track::Cpu(cpu) => 1 << 32 | u64::from(cpu),
            Track::Thread(tid) => 2 << 32 | u64::from(tid.unsigned_abs()),
            Track::Process(pid) => 3 << 32 | u64::from(pid.unsigned_abs()),
        }
    }
}

/// A trace that is being written. Events are written as they come. [`Perfetto::finish`] writes the
/// tracks, whose names are known only at the end.
pub struct Perfetto<W> {
    out: W,
    cpus: BTreeSet<u16>,
    /// Threads with a track, and their processes. 0 where the process is not known.
    threads: BTreeMap<i32, i32>,
    names: BTreeMap<i32, (i32, String)>,
    flows: u64,
}

impl<W: Write> Perfetto<W> {
    /// An empty trace.
    pub fn new(out: W) -> Perfetto<W> {
        let (cpus, threads, names) = Default::default();
        Perfetto { out, cpus, threads, names, flows: 0 }
    }

    /// Adds a moment to the trace.
    pub fn add(&mut self, moment: Moment) -> io::Result<()> {
        match moment {
            Moment::Fault { tid, pid, begin, end, label, confidence, address } => {
                self.threads.insert(tid, pid);
                let track = Track::Thread(tid);
                let sure = format!("{confidence:?}").to_lowercase();
                let known = [text("confidence", sure), pointer("address", address)];
                let event = named(track, "fault", label, known.to_vec());
                self.slice(event, begin, Some(end))
            }
            Moment::Reached { cpu, begin, end, asked, interrupted, to, from, cause, sent } => {
                self.cpus.insert(cpu);
                let how = if interrupted { "interrupt" } else { "without an interrupt" };
                let known = [
                    text("cause", cause),
                    text("how", how.to_owned()),
                    task("to", &to),
                    task("from", &from),
                ];
                let mut event = named(Track::Cpu(cpu), "interrupt", asked, known.to_vec());
                if let (Task::Thread(tid), Some(sent)) = (&from, sent) {
                    self.flows += 1;
                    self.threads.entry(*tid).or_default();
                    event.terminating_flow_ids = vec![self.flows];
                    let name = format!("{asked} to CPU {cpu}");
                    let mut sends = named(Track::Thread(*tid), "send", &name, Vec::new());
                    sends.flow_ids = vec![self.flows];
                    self.slice(sends, sent, None)?;
                }
                self.slice(event, begin, end)
            }
            Moment::Thread { tid, pid, name } => {
                self.names.insert(tid, (pid, name));
                Ok(())
            }
        }
    }

    /// A slice, or an instant if its end is not known.
    fn slice(&mut self, event: TrackEvent, begin: u64, end: Option<u64>) -> io::Result<()> {
        let Some(end) = end else {
            return self.event(TrackEvent { r#type: Some(Kind::Instant.into()), ..event }, begin);
        };
        let over = TrackEvent {
            r#type: Some(Kind::SliceEnd.into()),
            track_uuid: event.track_uuid,
            ..TrackEvent::default()
        };
        self.event(TrackEvent { r#type: Some(Kind::SliceBegin.into()), ..event }, begin)?;
        self.event(over, end)
    }

    fn event(&mut self, event: TrackEvent, time: u64) -> io::Result<()> {
        let track_event = Some(event);
        let packet = Packet { timestamp: Some(time), track_event, ..Packet::default() };
        self.out.write_all(&encoded(packet))
    }

    /// Returns the tracks, which come before the events, and the writer of the events.
    pub fn finish(self) -> (Vec<u8>, W) {
        let mut tracks = Vec::new();
        let mut describe = |track: Track, with: TrackDescriptor| {
            let uuid = Some(track.uuid());
            let track_descriptor = Some(TrackDescriptor { uuid, ..with });
            tracks.extend(encoded(Packet { track_descriptor, ..Packet::default() }));
        };
        for cpu in &self.cpus {
            let name = Some(format!("CPU {cpu}"));
            describe(Track::Cpu(*cpu), TrackDescriptor { name, ..TrackDescriptor::default() });
        }
        let mut processes = BTreeSet::new();
        for (tid, pid) in &self.threads {
            let (known, name) = self.names.get(tid).cloned().unwrap_or_default();
            // A thread whose process is not known is treated as a process.
            let pid = [*pid, known, *tid].into_iter().find(|pid| *pid != 0);
            let thread = ThreadDescriptor { pid, tid: Some(*tid), thread_name: Some(name) };
            let thread = Some(thread);
            describe(Track::Thread(*tid), TrackDescriptor { thread, ..TrackDescriptor::default() });
            processes.extend(pid);
        }
        for pid in processes {
            let process_name = self.names.get(&pid).map(|(_, name)| name.clone());
            let process = Some(ProcessDescriptor { pid: Some(pid), process_name });
            describe(
                Track::Process(pid),
                TrackDescriptor { process, ..TrackDescriptor::default() },
            );
        }
        (tracks, self.out)
    }
}

fn encoded(packet: Packet) -> Vec<u8> {
    let packet = Packet { trusted_packet_sequence_id: Some(1), ..packet };
    Trace { packet: vec![packet] }.encode_to_vec()
}

fn named(
    track: Track,
    category: &str,
    name: &str,
    debug_annotations: Vec<DebugAnnotation>,
) -> TrackEvent {
    TrackEvent {
        track_uuid: Some(track.uuid()),
        categories: vec![category.to_owned()],
        name: Some(name.to_owned()),
        debug_annotations,
        ..TrackEvent::default()
    }
}

fn text(name: &str, value: String) -> DebugAnnotation {
    let name = Some(name.to_owned());
    DebugAnnotation { name, string_value: Some(value), ..DebugAnnotation::default() }
}

fn pointer(name: &str, value: u64) -> DebugAnnotation {
    let name = Some(name.to_owned());
    DebugAnnotation { name, pointer_value: Some(value), ..DebugAnnotation::default() }
}

fn task(name: &str, task: &Task) -> DebugAnnotation {
    let told = match task {
        Task::Thread(tid) => format!("thread {tid}"),
        Task::Idle => "idle CPU".to_owned(),
        Task::Interrupt => "an interrupt".to_owned(),
        Task::Timer => "its timer".to_owned(),
        Task::Device(number) => format!("irq {number}"),
        Task::Unknown => "unknown".to_owned(),
        Task::Others => "others".to_owned(),
    };
    text(name, told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use needless_watch::fold::Confidence;

    #[test]
    fn a_flow_goes_from_who_sends_to_the_cpu() {
        let mut trace = Perfetto::new(Vec::new());
        let (label, confidence) = ("first touch", Confidence::Certain);
        let fault = Moment::Fault {
            tid: 8,
            pid: 7,
            begin: 10,
            end: 20,
            label,
            confidence,
            address: 0x1000,
        };
        let (from, to, cause) = (Task::Thread(8), Task::Thread(9), "munmap".to_owned());
        let (asked, sent) = ("TLB flush", Some(30));
        let reached = Moment::Reached {
            cpu: 1,
            begin: 40,
            end: Some(50),
            asked,
            interrupted: true,
            to,
            from,
            cause,
            sent,
        };
        let name = "worker".to_owned();
        for moment in [fault, reached, Moment::Thread { tid: 8, pid: 7, name }] {
            trace.add(moment).unwrap();
        }
        let (tracks, events) = trace.finish();
        let tracks = Trace::decode(&*tracks).unwrap().packet;
        let threads =
            tracks.iter().filter_map(|packet| packet.track_descriptor.as_ref()?.thread.as_ref());
        let threads: Vec<_> =
            threads.map(|thread| (thread.pid, thread.tid, thread.thread_name.as_deref())).collect();
        assert_eq!(threads, [(Some(7), Some(8), Some("worker"))]);
        let events = Trace::decode(&*events).unwrap().packet;
        let events = events
            .iter()
            .map(|packet| (packet.timestamp.unwrap(), packet.track_event.as_ref().unwrap()));
        let seen: Vec<_> = events.clone().map(|(time, event)| (time, event.r#type())).collect();
        use Kind::{Instant, SliceBegin, SliceEnd};
        assert_eq!(
            seen,
            [(10, SliceBegin), (20, SliceEnd), (30, Instant), (40, SliceBegin), (50, SliceEnd)]
        );
        let flows: Vec<_> = events
            .map(|(_, event)| (&event.flow_ids[..], &event.terminating_flow_ids[..]))
            .collect();
        assert_eq!(flows, [(&[][..], &[][..]), (&[], &[]), (&[1], &[]), (&[], &[1]), (&[], &[])]);
    }
}
