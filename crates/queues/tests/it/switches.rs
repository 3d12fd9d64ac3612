//! Switches stay as they were set, for every node and after a restart.

use crate::kit::*;
use skep_queues::store::*;

on_each_store!(
    switches_are_off_until_somebody_sets_them,
    a_switch_remembers_who_changed_it_and_when,
    others_see_a_switch_at_once,
);

async fn switches_are_off_until_somebody_sets_them(place: Place) {
    let store = place.open().await.whole();
    assert_eq!(store.switches().await.expect("reads"), Switches::default());
    let off = store.set_switch(Switch::Push, false, "ada").await.expect("writes");
    assert!(!off.push && !off.pop);
}

async fn a_switch_remembers_who_changed_it_and_when(place: Place) {
    let store = place.open().await.whole();
    let before = store.now().await.expect("reads");
    let on = store.set_switch(Switch::Pop, true, "ada").await.expect("writes");
    assert!(on.pop && !on.push && on.push_set.is_none());
    let set = on.pop_set.clone().expect("it was set");
    assert!(&*set.by == "ada" && set.since >= before, "{set:?}");
    let again = store.set_switch(Switch::Pop, true, "bob").await.expect("writes");
    assert_eq!(again, on, "it was on already");
    let off = store.set_switch(Switch::Pop, false, "bob").await.expect("writes");
    let set_off = off.pop_set.clone().expect("it was set");
    assert!(!off.pop && &*set_off.by == "bob" && set_off.since > set.since);
    let both = store.set_switch(Switch::Push, true, "eve").await.expect("writes");
    assert_eq!((both.push, both.pop, both.pop_set), (true, false, off.pop_set));
}

async fn others_see_a_switch_at_once(place: Place) {
    let store = place.open().await.whole();
    let set = store.set_switch(Switch::Push, true, "ada").await.expect("writes");
    if !place.shared_by_many() {
        drop(store);
    }
    let other = place.open().await.whole();
    assert_eq!(other.switches().await.expect("reads"), set);
}
