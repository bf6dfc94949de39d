//! Items that are judged on all processors are judged once each, and their results are in order.
#![allow(clippy::unwrap_used)]

use needless_testing::each;
use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::sync::Mutex;

#[test]
fn each_item_is_judged_once_and_told_in_order() {
    let (items, judged): (Vec<u32>, _) = ((0..1000).collect(), Mutex::new(Vec::new()));
    let told = each(&items, |item| {
        judged.lock().unwrap().push(*item);
        // The later items take less time.
        let odd = (0..(1000 - item) * 20).fold(*item, |a, b| a ^ b.rotate_left(a % 32)) & 1;
        item * 2 + odd
    });
    assert!(told.iter().map(|told| told / 2).eq(items.iter().copied()));
    let judged = judged.into_inner().unwrap();
    assert_eq!((judged.len(), judged.iter().collect::<BTreeSet<_>>().len()), (1000, 1000));
    assert_eq!(each(&[0; 0], |item| *item), [0; 0]);
}

#[test]
fn a_panic_is_the_callers() {
    let failed = catch_unwind(|| each(&[1, 2, 3], |item| assert_ne!(*item, 2, "this one")));
    let why = failed.unwrap_err();
    assert!(why.downcast_ref::<String>().unwrap().contains("this one"));
}
