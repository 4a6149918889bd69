// Custom is the reviewed executor plugin of the profile "custom": it converts
// the dotted declarations of a custom state into high data, and nothing else.
// minion-executor starts it; it can't be used by hand.
package main

import (
	"context"

	"github.com/oduflow/oduflow-salt/internal/executor"
	"github.com/oduflow/oduflow-salt/internal/state"
)

func main() { executor.Serve(converter{}) }

type converter struct{}

// Convert checks the whole document again: Decode takes nothing that the
// state language wouldn't have written.
func (converter) Convert(_ context.Context, canonical []byte) ([]byte, error) {
	doc, err := state.Decode(canonical)
	if err != nil {
		return nil, err
	}
	high, err := doc.High()
	if err != nil {
		return nil, err
	}
	return high.MarshalJSON()
}
