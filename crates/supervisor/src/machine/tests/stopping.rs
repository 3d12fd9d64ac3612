//! How it stops, with and without nodes that answer.

use super::*;

#[test]
fn stopping_drains_waits_for_the_last_session_stops_and_takes_leave() {
    let (mut desk, start) = Desk::serving(rules());
    desk.tell(Event::Stop);
    let (call, request) = desk.call();
    assert_eq!(request, Request::Drain);
    desk.answer(call, Ok(Reply::Done));
    assert_eq!(desk.heartbeat().phase, Phase::Serving);
    desk.order(Order::Serve);
    desk.wake();
    desk.heartbeat();
    desk.reply(Ok(Reply::Ordered(Ordered { active: 0, ..ordered(Order::Serve) })));
    let effects = desk.effects();
    assert_eq!(effects[0], Effect::StopProgram(start.clone()));
    desk.gone(&start);
    let (call, request) = desk.call();
    assert_eq!(request, Request::Delete);
    desk.answer(call, Ok(Reply::Done));
    assert_eq!(desk.only(), Effect::End(Outcome::Stopped));
}

#[test]
fn a_second_signal_does_not_wait_for_sessions() {
    let (mut desk, start) = Desk::serving(rules());
    desk.tell(Event::Stop);
    desk.effects();
    desk.tell(Event::Stop);
    assert_eq!(desk.effects()[0], Effect::StopProgram(start));
}

#[test]
fn sessions_that_do_not_end_are_cut_at_the_drain_limit() {
    let (mut desk, start) = Desk::serving(rules());
    desk.tell(Event::Stop);
    let (call, request) = desk.call();
    assert_eq!(request, Request::Drain);
    desk.answer(call, Ok(Reply::Done));
    desk.effects();
    desk.now = Time::from_millis(290_000);
    desk.tell(Event::Wake);
    assert!(!desk.effects().contains(&Effect::StopProgram(start.clone())));
    desk.now = Time::from_millis(310_000);
    desk.tell(Event::Wake);
    assert_eq!(desk.effects()[0], Effect::StopProgram(start));
}

#[test]
fn where_no_node_answers_nobody_is_waited_for() {
    let (mut desk, start) = Desk::serving(rules());
    desk.tell(Event::Stop);
    let began = desk.now;
    let stops = |effect: &Effect| *effect == Effect::StopProgram(start.clone());
    let stopped = (0..1_000).any(|_| {
        let effects = desk.effects();
        for effect in &effects {
            if let Effect::Call { call, .. } = effect {
                desk.answer(*call, failed());
            }
        }
        let stopped = effects.iter().any(stops);
        if !stopped {
            desk.wake();
        }
        stopped
    });
    let took = desk.now.since(began);
    assert!(stopped && took >= AGREE_LIMIT, "a node that starts again may still answer: {took:?}");
    assert!(took < 2 * AGREE_LIMIT, "{took:?}");
    desk.gone(&start);
    assert_eq!(desk.only(), Effect::End(Outcome::Stopped));
}

#[test]
fn a_crash_while_draining_is_the_end_and_no_new_start() {
    let (mut desk, start) = Desk::serving(rules());
    desk.tell(Event::Stop);
    desk.effects();
    desk.gone(&start);
    assert!(matches!(desk.call(), (_, Request::Delete)));
}

#[test]
fn leave_is_taken_without_an_answer_when_no_node_gives_one() {
    let (mut desk, start) = Desk::serving(rules());
    desk.tell(Event::Stop);
    desk.tell(Event::Stop);
    desk.gone(&start);
    let mut ended = None;
    for _ in 0..1_000 {
        for effect in desk.effects() {
            match effect {
                Effect::Call { call, .. } => desk.answer(call, failed()),
                Effect::End(outcome) => ended = Some(outcome),
                _ => {}
            }
        }
        if ended.is_some() {
            break;
        }
        desk.wake();
    }
    assert_eq!(ended, Some(Outcome::Stopped));
    assert!(desk.now.since(Time::ZERO) <= DELETE_LIMIT);
}

#[test]
fn leave_is_taken_at_once_after_a_denied_call_and_not_insisted_on() {
    let (mut desk, start) = Desk::serving(rules());
    let denied = || Err(Failure::Denied("answered 403".to_owned()));
    desk.reply(denied());
    desk.tell(Event::Stop);
    assert!(matches!(desk.call(), (_, Request::Drain)));
    desk.reply(denied());
    desk.tell(Event::Stop);
    desk.effects();
    desk.gone(&start);
    assert!(matches!(desk.call(), (_, Request::Delete)));
    desk.reply(denied());
    assert_eq!(desk.only(), Effect::End(Outcome::Stopped));
}

#[test]
fn a_stop_stays_a_stop_when_the_name_was_taken_meanwhile() {
    let (mut desk, start) = Desk::serving(rules());
    desk.tell(Event::Stop);
    desk.tell(Event::Stop);
    desk.effects();
    desk.reply(Err(Failure::Replaced("start x".to_owned())));
    desk.gone(&start);
    assert_eq!(desk.only(), Effect::End(Outcome::Stopped));
}

#[test]
fn a_supervisor_that_no_node_ever_heard_of_stops_at_once() {
    let mut desk = Desk::new(rules());
    let start = desk.start_of_program();
    desk.tell(Event::Stop);
    assert_eq!(desk.only(), Effect::StopProgram(start.clone()));
    desk.gone(&start);
    assert_eq!(desk.only(), Effect::End(Outcome::Stopped));
}

#[test]
fn a_stop_between_two_registrations_still_drains() {
    let (mut desk, _) = Desk::serving(rules());
    desk.reply(Err(Failure::Forgotten("404".to_owned())));
    let (call, _) = desk.call();
    desk.tell(Event::Stop);
    assert_eq!(desk.effects(), []);
    desk.agree(call, 2);
    assert!(matches!(desk.call(), (_, Request::Drain)));
}

#[test]
fn the_predecessors_sessions_are_waited_for_as_well() {
    let (mut desk, first) = Desk::serving(Desk::successors());
    desk.order(Order::Succeed);
    let Effect::Start(second) = desk.effects()[0].clone() else { panic!("is started") };
    desk.ready(&second);
    desk.register(2);
    desk.effects();
    desk.tell(Event::Stop);
    let (call, _) = desk.call();
    desk.answer(call, Ok(Reply::Done));
    desk.heartbeat();
    let reply = |leaving| {
        Ok(Reply::Ordered(Ordered { order: Order::Serve, lifetime: 0, active: 0, leaving }))
    };
    desk.reply(reply(1));
    assert_eq!(desk.effects(), []);
    desk.wake();
    desk.heartbeat();
    desk.reply(reply(0));
    let effects = desk.effects();
    assert!(effects.contains(&Effect::StopProgram(first)), "{effects:?}");
    assert!(effects.contains(&Effect::StopProgram(second)), "{effects:?}");
}
