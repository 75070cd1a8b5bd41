use super::former_streams::FormerStreams;
use crate::lateral::index::{GroupIx, StreamIx};

/// Streams of each group. Each stream stores its position in this list, so that it is removed in
/// constant time.
#[derive(Debug, Default)]
pub(crate) struct GroupStreams(Vec<OfGroup>);

#[derive(Debug, Default)]
struct OfGroup {
    streams: Vec<StreamIx>,
    last: usize,
    former: FormerStreams,
}

impl GroupStreams {
    pub(crate) fn push(&mut self, group: GroupIx, ix: StreamIx) -> u32 {
        let streams = &mut self.get_mut(group).streams;
        streams.push(ix);
        streams.len() as u32 - 1
    }

    pub(crate) fn remove(&mut self, group: GroupIx, place: u32) -> Option<StreamIx> {
        let OfGroup { streams, last, .. } = &mut self.0[group.0 as usize];
        streams.swap_remove(place as usize);
        if *last == place as usize {
            // The stream that moves to this place has not been searched.
            *last = last.checked_sub(1).unwrap_or(streams.len().saturating_sub(1));
        }
        streams.get(place as usize).copied()
    }

    pub(crate) fn take(&mut self, group: GroupIx) -> (Vec<StreamIx>, FormerStreams) {
        let of_group = self.0.get_mut(group.0 as usize).map(core::mem::take).unwrap_or_default();
        (of_group.streams, of_group.former)
    }

    pub(crate) fn former(&self, group: GroupIx) -> Option<&FormerStreams> {
        self.0.get(group.0 as usize).map(|of_group| &of_group.former)
    }

    pub(crate) fn former_mut(&mut self, group: GroupIx) -> &mut FormerStreams {
        &mut self.get_mut(group).former
    }

    pub(crate) fn of(&self, group: GroupIx) -> &[StreamIx] {
        self.0.get(group.0 as usize).map_or(&[], |of_group| &of_group.streams)
    }

    /// Searches at most `count` streams, continuing where the last search ended.
    pub(crate) fn find_next(
        &mut self,
        group: GroupIx,
        count: usize,
        wanted: impl Fn(&StreamIx) -> bool,
    ) -> Option<StreamIx> {
        let OfGroup { streams, last, .. } = self.0.get_mut(group.0 as usize)?;
        (0..streams.len().min(count)).find_map(|_| {
            *last = (*last + 1) % streams.len();
            Some(streams[*last]).filter(&wanted)
        })
    }

    fn get_mut(&mut self, group: GroupIx) -> &mut OfGroup {
        let groups = group.0 as usize + 1;
        if self.0.len() < groups {
            self.0.resize_with(groups, OfGroup::default);
        }
        &mut self.0[group.0 as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|of_group| of_group.streams.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;

    #[test]
    fn search_continues_where_the_last_one_ended() {
        let mut streams = GroupStreams::default();
        let group = GroupIx(3);
        (0..1000).for_each(|ix| _ = streams.push(group, StreamIx(ix)));
        let searched = RefCell::new(Vec::new());
        for _ in 0..20 {
            let found = streams.find_next(group, 50, |ix| {
                searched.borrow_mut().push(*ix);
                false
            });
            assert_eq!(found, None);
        }
        let mut searched = searched.into_inner();
        searched.sort_unstable();
        assert!(searched.into_iter().eq((0..1000).map(StreamIx)), "each once in 20 searches");
        assert_eq!(streams.find_next(GroupIx(9), 50, |_| true), None);
    }
}
