package state

import "github.com/oduflow/oduflow-salt/internal/problem"

// ResultKey is the key under which Salt answers for one state.
type ResultKey struct{ Module, ID, Name, Function string }

// String gives it as Salt writes it: `module_|-id_|-name_|-function`.
func (k ResultKey) String() string {
	return k.Module + separator + k.ID + separator + k.Name + separator + k.Function
}

// Expected lists the results that a run has to bring, in definition order. It
// is known before anything runs.
func (d *Document) Expected() []ResultKey {
	keys := make([]ResultKey, 0, d.declared)
	for i := range d.ids {
		for j := range d.ids[i].calls {
			f := &d.ids[i].calls[j]
			k := ResultKey{Module: f.module, ID: d.ids[i].id, Name: f.name, Function: f.function}
			if len(f.names) == 0 {
				keys = append(keys, k)
				continue
			}
			for _, k.Name = range f.names {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

// Result is what Salt says about one state.
type Result int

// The results. Anything that isn't exactly true, false or null is Other.
const (
	Missing Result = iota // no result at all
	True
	False
	Null // a test run; nothing was done
	Other
)

// KeyedResult is one entry of what state.high returned.
type KeyedResult struct {
	Key    string
	Result Result
}

// Outcome is what a run made of a document. Code is "" for a success.
type Outcome struct {
	Declared, Passed, Failed, NotRun int
	Code                             problem.Code
}

// Account holds what came back against what was declared (invariant 8). It is
// a success only if every declared state is there with a true result and
// nothing beside them failed. A result beside the declared ones, as `listen`
// adds, is in no count.
func Account(expected []ResultKey, got []KeyedResult) Outcome {
	o := Outcome{Declared: len(expected)}
	results := make(map[string]Result, len(got))
	for _, g := range got {
		if had, twice := results[g.Key]; twice && had != True {
			continue // of two answers under one key the worse counts
		}
		results[g.Key] = g.Result
	}
	failed := false
	for _, k := range expected {
		key := k.String()
		switch results[key] {
		case True:
			o.Passed++
		case Missing:
			o.NotRun++
		case False, Null, Other:
			o.Failed++
			failed = true
		}
		delete(results, key)
	}
	for _, r := range results {
		if r != True {
			failed = true
		}
	}
	switch {
	case failed:
		o.Code = problem.StateFailed
	case o.NotRun > 0 || o.Declared == 0:
		o.Code = problem.NotAllAccounted
	}
	return o
}
