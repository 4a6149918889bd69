//go:build !faults

package fault

// Before marks that a step is about to be taken.
func Before(Step) {}

// After marks that a step was taken.
func After(Step) {}

// Told gives what is told of a step that was taken: err.
func Told(_ Step, err error) error { return err }

// On names the step as it is taken for one target.
func (s Step) On(string) Step { return s }
