package receipt

import "math"

// A ledger counts the facts that were ever written to it, and tells that number,
// its generation, with each answer. It only grows. So an answer that tells less
// than was known before its question was asked doesn't come from the ledger that
// told more: that one was put back from a copy, or there are two of them.
//
// What was known is taken before the question goes out, and goes with it. What
// becomes known while it is on its way says nothing: answers overtake each other.

// Line is one ledger of a target, since the newest adoption that recorded it.
type Line struct {
	Adoption   int64  // the number of that adoption
	Generation uint64 // the highest that the ledger has told since, 0 for none
}

// Lines are those of one target at one moment, by the ledger's id.
type Lines map[string]Line

// Told is what one answer tells of its ledger, beside what was known before its
// question was asked. The zero value tells nothing.
type Told struct {
	Adoption   int64  // 0: of a ledger that no adoption has recorded
	Known      uint64 // 0: none
	Generation uint64 // 0: an executor that tells none, or that read no ledger
}

// Tell gives what an answer of a ledger tells, where l was known before.
func (l Lines) Tell(ledger string, generation uint64) Told {
	line := l[ledger]
	return Told{
		Adoption: line.Adoption, Known: line.Generation,
		Generation: min(generation, math.MaxInt64), // what a database can keep
	}
}

// With gives what is known once an answer has told a generation.
func (l Lines) With(ledger string, generation uint64) Lines {
	out := make(Lines, len(l))
	for id, line := range l {
		if id == ledger {
			line.Generation = max(line.Generation, min(generation, math.MaxInt64))
		}
		out[id] = line
	}
	return out
}

// Adopted gives the ledger that was adopted last, and what it has told since.
func (l Lines) Adopted() (ledger string, generation uint64) {
	var newest int64
	for id, line := range l {
		if line.Adoption > newest {
			newest, ledger, generation = line.Adoption, id, line.Generation
		}
	}
	return ledger, generation
}

// Behind says that a ledger that told more before doesn't now. It may have
// forgotten: that it has no record of something, or that something never began
// there, proves nothing. What it does remember has happened.
func (t Told) Behind() bool { return t.Generation < t.Known }

// PutBack says that it is proved to be another state of the ledger, or another
// copy. Behind alone may be an executor that can't tell the generation just now.
func (t Told) PutBack() bool { return t.Behind() && t.Generation > 0 }

// News says that there is something to keep of it.
func (t Told) News() bool { return t.Adoption != 0 && t.Generation != 0 && t.Generation != t.Known }
