//! Results of polls as messages.

use skep_polls::Publish;
use skep_queues::record::Wishes;
use skep_queues::store::DEFAULT_PARTITION;
use skep_queues::{NewItem, Queues};
use std::pin::Pin;
use std::sync::Arc;

/// Takes results of polls to queues.
pub struct PollResults(Queues);

impl PollResults {
    /// To the queues of this node.
    pub fn to(queues: Queues) -> Arc<dyn Publish> {
        Arc::new(PollResults(queues))
    }
}

impl Publish for PollResults {
    /// What an endpoint may call a queue, a queue may be called.
    fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn publish<'a>(
        &'a self,
        queue: &'a str,
        id: &'a str,
        body: serde_json::Value,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>> {
        Box::pin(async move {
            // An endpoint is a partition, so that its results stay in order and no endpoint waits
            // for another. One poll has one id, so a result that is pushed again is known again.
            let endpoint = body["endpoint"].as_str().unwrap_or(DEFAULT_PARTITION);
            let item = NewItem {
                queue: Arc::from(queue),
                partition: Arc::from(endpoint),
                payload: Arc::from(body.to_string().into_bytes()),
                transaction: Some(Arc::from(id)),
                trace: None,
                producer: Some(Arc::from("polls")),
                wishes: Wishes::default(),
            };
            let pushed = self.0.push(&[item]).await;
            pushed.map(|_| ()).map_err(|error| error.to_string())
        })
    }
}
