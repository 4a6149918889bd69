package minion

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
)

// runDir is the folder for this boot: what the minion's configuration names, or
// one below /run that belongs to this state_dir alone. It must not be put back
// together with the ledger, so it is never inside of it.
func (c *call) runDir() string {
	if c.facts.RunDir != "" {
		return c.facts.RunDir
	}
	sum := sha256.Sum256([]byte(filepath.Clean(c.facts.StateDir)))
	name := hex.EncodeToString(sum[:8])
	if c.UID == 0 {
		return filepath.Join("/run/oduflow-minion", name)
	}
	return filepath.Join(os.TempDir(), "oduflow-minion-"+strconv.Itoa(c.UID)+"-"+name)
}
