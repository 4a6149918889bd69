package memstore

import (
	"maps"
	"slices"
)

// Copy is a copy of a database, as a backup holds it.
type Copy struct{ d data }

// Copy takes one.
func (s *Store) Copy() Copy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Copy{s.d.clone()}
}

// Restore puts a copy in the place of everything, as `masterd restore` does: a
// new epoch begins, and nothing that was bound before it is started in it.
func (s *Store) Restore(c Copy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.d = c.d.clone()
	if s.IgnoreEpochs {
		return
	}
	for request, r := range s.d.receipts {
		r.Carried = true
		s.d.receipts[request] = r
	}
}

// Init is `masterd init` where the database is lost: it knows nothing.
func (s *Store) Init() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.d = empty()
}

func (d data) clone() data {
	d.requests, d.receipts = maps.Clone(d.requests), maps.Clone(d.receipts)
	d.canonical, d.sources, d.targets = maps.Clone(d.canonical), maps.Clone(d.sources), maps.Clone(d.targets)
	d.order, d.witnesses, d.transitions = slices.Clone(d.order), slices.Clone(d.witnesses), slices.Clone(d.transitions)
	d.number, d.adoptions = maps.Clone(d.number), slices.Clone(d.adoptions)
	d.settlements, d.settled = maps.Clone(d.settlements), slices.Clone(d.settled)
	return d
}
