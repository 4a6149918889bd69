//go:build !faults

package minion

import "github.com/oduflow/oduflow-salt/internal/message"

// breakable is the seam for the test build; here there is nothing to break.
func breakable(h Host, _ message.Kind, _ Facts) Host { return h }
