package saltreq

// Function is a function that may be published: a closed set. The zero value
// and any number outside of the set are refused by Publish.
type Function uint8

// The functions of the minion module, and the one of Salt's own that fixed
// profiles need.
const (
	Prepare Function = iota + 1
	Start
	Evidence
	Settle
	Update
	PillarRefresh
)

// Functions gives the whole set, for tests and for the documentation of the
// publisher_acl that masterd needs.
func Functions() []Function {
	return []Function{Prepare, Start, Evidence, Settle, Update, PillarRefresh}
}

// String gives Salt's name of the function, "" for a value outside of the set.
func (f Function) String() string {
	switch f {
	case Prepare:
		return "oduflow.prepare"
	case Start:
		return "oduflow.start"
	case Evidence:
		return "oduflow.evidence"
	case Settle:
		return "oduflow.settle"
	case Update:
		return "oduflow.update"
	case PillarRefresh:
		return "saltutil.refresh_pillar"
	}
	return ""
}

// takesArg says whether the function takes our one opaque argument. Salt's own
// takes none from us.
func (f Function) takesArg() bool { return f != PillarRefresh }
