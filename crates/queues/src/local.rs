//! The file of a node that pushes go to while the database is away, or while they are held back.
//!
//! A node that needs no such file has none until pushes are first held back; one that finds the
//! file of an earlier life brings what is in it to the database.

use crate::buffer::{Buffer, BufferError, Kept, PushTo, Spill, SpillError, SpillOptions};
use crate::desk::Desk;
use crate::store::NewMessage;
use skep_store::MigrateError;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, OnceCell};
use uuid::Uuid;

/// Where a node may keep pushes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalBuffer {
    /// A folder of its own; made when it is needed.
    pub folder: PathBuf,
    /// Bytes that it may take.
    pub limit: u64,
    /// Whether it is also for pushes that come while the database is away.
    pub when_away: bool,
}

type Spilling = Spill<Arc<Desk>>;

/// Where the pushes of a node go.
pub(crate) struct Local {
    desk: Arc<Desk>,
    place: Option<LocalBuffer>,
    spill: OnceCell<Spilling>,
    opened: Notify,
    /// Whether pushes are held back; locked while that is told to the spill.
    held: Mutex<bool>,
}

impl Local {
    /// Opens the file if it is needed from the start, or is there.
    pub(crate) async fn open(
        desk: Arc<Desk>,
        place: Option<LocalBuffer>,
    ) -> Result<Self, MigrateError> {
        let local = Local {
            desk,
            place,
            spill: OnceCell::new(),
            opened: Notify::new(),
            held: Mutex::new(false),
        };
        if let Some(place) = &local.place
            && (place.when_away || place.folder.exists())
        {
            local.spill.get_or_try_init(|| local.start(place)).await?;
        }
        Ok(local)
    }

    async fn start(&self, place: &LocalBuffer) -> Result<Spilling, MigrateError> {
        let buffer = Buffer::open(&place.folder, place.limit).await?;
        let options = SpillOptions { when_away: place.when_away, ..SpillOptions::default() };
        let seed = Uuid::new_v4().as_u64_pair().0;
        let spill = Spill::new(buffer, self.desk.clone(), options, seed);
        spill.hold(self.is_held());
        Ok(spill)
    }

    /// The file, if there is one.
    pub(crate) fn buffer(&self) -> Option<&Buffer> {
        self.spill.get().map(Spill::buffer)
    }

    /// Whether pushes are held back.
    pub(crate) fn is_held(&self) -> bool {
        *self.held()
    }

    /// Holds pushes back, or lets them go. If there is no file to hold them in, they are refused
    /// until there is one.
    pub(crate) async fn hold(&self, held: bool) -> Result<(), BufferError> {
        {
            let mut now = self.held();
            *now = held;
            if let Some(spill) = self.spill.get() {
                spill.hold(held);
            }
        }
        if held {
            self.spill().await?;
        }
        Ok(())
    }

    /// The file, made if it is not there.
    async fn spill(&self) -> Result<&Spilling, BufferError> {
        if let Some(spill) = self.spill.get() {
            return Ok(spill);
        }
        let failed = |cause: String| BufferError::Open { cause };
        let place = self.place.as_ref();
        let place = place.ok_or_else(|| failed("this node has no place for it".to_owned()))?;
        let spill = self.spill.get_or_try_init(|| self.start(place)).await;
        let spill = spill.map_err(|error| failed(error.to_string()))?;
        // Whoever changed it meanwhile may not have seen that there is a spill.
        let held = self.held();
        spill.hold(*held);
        drop(held);
        self.opened.notify_one();
        Ok(spill)
    }

    /// Keeps messages, in the database or here.
    pub(crate) async fn push(&self, messages: Vec<NewMessage>) -> Result<Kept, SpillError> {
        match self.spill.get() {
            Some(spill) => spill.push(messages).await,
            None if self.is_held() => self.spill().await?.push(messages).await,
            None => Ok(Kept::Pushed(self.desk.push(messages).await?)),
        }
    }

    /// Brings what was kept here to the database, for ever.
    pub(crate) async fn replay(&self) {
        loop {
            match self.spill.get() {
                Some(spill) => spill.replay().await,
                None => self.opened.notified().await,
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, bool> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
