//! Results that no node has yet, at most so many: where there are more, the oldest go.

use super::journal::{Journal, Opened};
use super::scribe::Scribe;
use super::wire::Measured;
use std::collections::VecDeque;
use std::io;
use std::path::Path;

/// A file is written anew when it has so many lines more than there are results.
const SPARE_LINES: u64 = 10_000;

/// Results in the order in which they were measured, in memory and perhaps in a file.
pub struct Buffer {
    results: VecDeque<(u64, Measured)>,
    /// So many of the first are on their way to a node.
    sending: usize,
    next: u64,
    most: usize,
    dropped: u64,
    /// The file, if there is one: written beside, never waited for.
    scribe: Option<Scribe>,
}

impl Buffer {
    /// In memory alone.
    pub fn new(most: usize) -> Self {
        let results = VecDeque::new();
        Buffer { results, sending: 0, next: 1, most: most.max(1), dropped: 0, scribe: None }
    }

    /// In this file too, with what it holds. The second is how many of its lines made no sense.
    pub fn open(path: &Path, most: usize) -> io::Result<(Self, u64)> {
        let Opened { journal, results, next, damaged } = Journal::open(path)?;
        let scribe = Some(Scribe::start(journal)?);
        let mut buffer = Buffer { results: results.into(), next, scribe, ..Buffer::new(most) };
        buffer.trim();
        Ok((buffer, damaged))
    }

    /// Results that no node has.
    pub fn len(&self) -> usize {
        self.results.len()
    }

    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// Whether what is left is there after a restart.
    pub fn is_durable(&self) -> bool {
        self.scribe.as_ref().is_some_and(Scribe::is_whole)
    }

    /// Results that were given up for want of room and nobody was told of.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The same; somebody is told now.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Adds a result. It is kept in memory also if the file cannot be written; an error tells of
    /// something that went wrong with the file lately.
    pub fn push(&mut self, result: Measured) -> io::Result<()> {
        let number = self.next;
        self.next += 1;
        if let Some(scribe) = &mut self.scribe {
            scribe.append(number, &result);
        }
        self.results.push_back((number, result));
        self.trim();
        self.tidy()
    }

    /// The oldest results, at most `limit`. They are on their way until [`Buffer::settled`] or
    /// [`Buffer::unsent`].
    pub fn send(&mut self, limit: usize) -> Vec<Measured> {
        self.sending = limit.min(self.results.len());
        self.results.iter().take(self.sending).map(|(_, result)| result.clone()).collect()
    }

    /// Those that were on their way are done with: a node has them, or nobody ever will.
    pub fn settled(&mut self) -> io::Result<()> {
        let last = self.results.drain(..self.sending).next_back();
        self.sending = 0;
        if let (Some(scribe), Some((number, _))) = (&mut self.scribe, last) {
            scribe.done(number);
        }
        self.tidy()
    }

    /// Nobody knows what became of those that were on their way: they wait again.
    pub fn unsent(&mut self) {
        self.sending = 0;
        self.trim();
    }

    /// Gives up the oldest beyond what may wait. What is on its way does not count.
    fn trim(&mut self) {
        while self.results.len() - self.sending > self.most {
            self.results.remove(self.sending);
            self.dropped += 1;
        }
    }

    /// Writes the file anew if it is damaged or much longer than it need be.
    fn tidy(&mut self) -> io::Result<()> {
        let Some(scribe) = &mut self.scribe else { return Ok(()) };
        let long = scribe.lines() > self.results.len() as u64 + SPARE_LINES;
        if scribe.is_to_mend() || (long && scribe.is_whole()) {
            scribe.rewrite(self.results.iter());
        }
        scribe.take_trouble()
    }

    /// Sees to it that the file, if there is one, has what is left.
    pub async fn save(&mut self) -> io::Result<()> {
        let Some(scribe) = &mut self.scribe else { return Ok(()) };
        let flushed = scribe.flush().await;
        if scribe.is_whole() || scribe.is_lost() {
            return flushed;
        }
        scribe.rewrite(self.results.iter());
        scribe.flush().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_policy::{Chance, SeededChance};
    use std::fs;

    fn result(at: i64) -> Measured {
        let server = "s".to_owned();
        Measured { server, at, rtt_ms: Some(1.5), offset_ms: None, error: None }
    }

    fn filled(most: usize, count: i64) -> Buffer {
        let mut buffer = Buffer::new(most);
        (0..count).for_each(|at| buffer.push(result(at)).expect("keeps"));
        buffer
    }

    /// Waits until the file has what it was given.
    fn flush(buffer: &mut Buffer) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let scribe = buffer.scribe.as_mut().expect("a file");
        runtime.expect("a runtime").block_on(scribe.flush())
    }

    fn times(results: &[Measured]) -> Vec<i64> {
        results.iter().map(|result| result.at).collect()
    }

    #[test]
    fn the_oldest_go_first_to_a_node_and_when_there_is_no_room() {
        let mut buffer = filled(3, 5);
        assert_eq!((buffer.len(), buffer.take_dropped(), buffer.take_dropped()), (3, 2, 0));
        assert_eq!(times(&buffer.send(2)), [2, 3]);
        buffer.settled().expect("forgets");
        assert_eq!(times(&buffer.send(2)), [4]);
    }

    #[test]
    fn what_is_on_its_way_is_not_given_up_and_comes_again_if_it_got_lost() {
        let mut buffer = filled(3, 3);
        assert_eq!(times(&buffer.send(2)), [0, 1]);
        (3..6).for_each(|at| buffer.push(result(at)).expect("keeps"));
        assert_eq!((buffer.len(), buffer.take_dropped()), (5, 1), "the 2 went");
        buffer.unsent();
        assert_eq!((buffer.len(), buffer.take_dropped()), (3, 2));
        assert_eq!(times(&buffer.send(9)), [3, 4, 5]);
    }

    #[test]
    fn a_file_brings_back_what_no_node_has() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results");
        let (mut buffer, _) = Buffer::open(&path, 100).expect("opens");
        (0..10).for_each(|at| buffer.push(result(at)).expect("keeps"));
        buffer.send(4);
        buffer.settled().expect("forgets");
        buffer.send(3);
        // Killed here: those on their way may have arrived or not, so they come again.
        drop(buffer);
        let (mut buffer, damaged) = Buffer::open(&path, 100).expect("opens");
        assert_eq!((buffer.len(), damaged), (6, 0));
        assert_eq!(times(&buffer.send(100)), [4, 5, 6, 7, 8, 9]);
        buffer.push(result(10)).expect("keeps");
        drop(buffer);
        let (mut buffer, _) = Buffer::open(&path, 2).expect("opens");
        assert_eq!((times(&buffer.send(100)), buffer.take_dropped()), (vec![9, 10], 5));
    }

    #[test]
    fn the_file_stays_bounded_however_many_results_pass_through() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results");
        let (mut buffer, _) = Buffer::open(&path, 10).expect("opens");
        for at in 0..25_000 {
            buffer.push(result(at)).expect("keeps");
            if at % 7 == 0 {
                buffer.send(3);
                buffer.settled().expect("forgets");
            }
            if at % 1_000 == 0 {
                flush(&mut buffer).expect("writes");
            }
        }
        flush(&mut buffer).expect("writes");
        let bytes = fs::metadata(&path).expect("is there").len();
        assert!(bytes < (SPARE_LINES + 20) * 60, "{bytes}");
        let kept = buffer.send(100);
        drop(buffer);
        let (mut buffer, _) = Buffer::open(&path, 10).expect("opens");
        assert_eq!(buffer.send(100), kept);
    }

    #[test]
    fn a_file_cut_anywhere_loses_its_last_line_alone_and_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results");
        let (mut buffer, _) = Buffer::open(&path, 100).expect("opens");
        (0..20).for_each(|at| buffer.push(result(at)).expect("keeps"));
        drop(buffer);
        let whole = fs::read(&path).expect("reads");
        let mut chance = SeededChance::new(11);
        for _ in 0..200 {
            let cut = chance.up_to(whole.len() as u64) as usize;
            fs::write(&path, &whole[..cut]).expect("writes");
            let lines = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
            let (mut buffer, _) = Buffer::open(&path, 100).expect("opens");
            assert_eq!(buffer.len(), lines, "cut at {cut}");
            buffer.push(result(99)).expect("keeps");
            drop(buffer);
            let (mut buffer, damaged) = Buffer::open(&path, 100).expect("opens");
            assert_eq!((buffer.len(), damaged), (lines + 1, 0), "cut at {cut}");
            assert_eq!(times(&buffer.send(100)).last(), Some(&99));
        }
    }

    #[test]
    fn damage_in_the_middle_costs_the_lines_it_hit() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results");
        let (mut buffer, _) = Buffer::open(&path, 100).expect("opens");
        (0..5).for_each(|at| buffer.push(result(at)).expect("keeps"));
        drop(buffer);
        let mut bytes = fs::read(&path).expect("reads");
        let second = bytes.iter().position(|byte| *byte == b'\n').expect("a line") + 3;
        bytes[second] = 0xFF;
        fs::write(&path, &bytes).expect("writes");
        let (mut buffer, damaged) = Buffer::open(&path, 100).expect("opens");
        assert_eq!((times(&buffer.send(100)), damaged), (vec![0, 2, 3, 4], 1));
    }

    #[test]
    fn two_agents_cannot_have_one_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results");
        let (buffer, _) = Buffer::open(&path, 10).expect("opens");
        let error = Buffer::open(&path, 10).err().expect("it is in use");
        assert!(error.to_string().contains("another agent"), "{error}");
        drop(buffer);
        Buffer::open(&path, 10).expect("opens");
    }

    #[test]
    fn a_failed_write_costs_no_result_and_the_file_is_made_whole_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results");
        let mut buffer = filled(10, 1);
        buffer.scribe = Some(Scribe::start(Journal::unwritable(&path)).expect("starts"));
        buffer.push(result(1)).expect("keeps");
        assert!(flush(&mut buffer).is_err());
        assert!(!buffer.is_durable());
        buffer.push(result(2)).expect("keeps");
        flush(&mut buffer).expect("writes");
        assert!(buffer.is_durable());
        drop(buffer);
        let (mut buffer, _) = Buffer::open(&path, 10).expect("opens");
        assert_eq!(times(&buffer.send(10)), [0, 1, 2]);
    }

    #[test]
    fn a_file_of_somebody_else_is_refused_and_left_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notes");
        for text in ["dear diary\n", "dear diary", "{}\n{}\n"] {
            fs::write(&path, text).expect("writes");
            let error = Buffer::open(&path, 10).err().expect("not ours");
            assert!(error.to_string().contains("not written by an agent"), "{error}");
            assert_eq!(fs::read_to_string(&path).expect("reads"), text);
        }
    }
}
