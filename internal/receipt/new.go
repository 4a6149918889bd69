package receipt

// New is the receipt of a request that was just bound to an execution of its
// own: queued, with nothing checked and nothing run.
func New(b Binding) Receipt {
	return Receipt{Binding: b, State: Queued, Counts: Counts{Declared: b.Declared}}
}
