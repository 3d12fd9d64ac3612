//! The last changes of any node, for those who watch live.

use crate::model::HistoryRow;
use std::collections::VecDeque;

/// Changes by id, the newest last.
#[derive(Default)]
pub(crate) struct News {
    rows: VecDeque<HistoryRow>,
    newest: i64,
    /// What was there when the first look was taken is no news.
    began: bool,
}

impl News {
    /// So many are kept; who looks seldom misses some, and finds them in the history.
    pub const MAX: usize = 200;

    /// Takes the newest rows of the history, the newest first.
    pub fn take(&mut self, newest: Vec<HistoryRow>) {
        let before = self.newest;
        for row in newest.into_iter().rev().filter(|row| row.id > before) {
            self.newest = self.newest.max(row.id);
            if self.began {
                if self.rows.len() == News::MAX {
                    self.rows.pop_front();
                }
                self.rows.push_back(row);
            }
        }
        self.began = true;
    }

    /// Those after this one, and the newest id.
    pub fn after(&self, id: i64) -> (Vec<HistoryRow>, i64) {
        (self.rows.iter().filter(|row| row.id > id).cloned().collect(), self.newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_policy::monitors::Status;

    fn row(id: i64) -> HistoryRow {
        HistoryRow {
            id,
            at_ms: id,
            server: "s".to_owned(),
            monitor: "m".to_owned(),
            from: Status::Candidate,
            to: Status::Testing,
            rule: "5".to_owned(),
            reason: String::new(),
        }
    }

    fn ids(rows: Vec<HistoryRow>) -> Vec<i64> {
        rows.iter().map(|row| row.id).collect()
    }

    #[test]
    fn what_was_there_at_the_start_is_no_news_and_later_ones_come_once() {
        let mut news = News::default();
        news.take(vec![row(2), row(1)]);
        assert_eq!(news.after(0), (Vec::new(), 2));
        news.take(vec![row(4), row(3), row(2), row(1)]);
        news.take(vec![row(4), row(3)]);
        let (rows, newest) = news.after(3);
        assert_eq!((ids(rows), newest), (vec![4], 4));
        assert_eq!(ids(news.after(0).0), [3, 4]);
    }
}
