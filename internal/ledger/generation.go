package ledger

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	generationFile    = "generation.json"
	generationVersion = 1
	generationSize    = 64
)

// Generation is how many facts were ever written to this ledger, or begun to
// be. It only grows while the ledger is in its place, so who has seen a higher
// one knows that a ledger was put back from a copy. 0: nothing was written yet.
func (l *Ledger) Generation() (uint64, error) {
	var g struct {
		Generation uint64 `json:"generation"`
	}
	_, err := load(l.path(generationFile), generationVersion, &g)
	return g.Generation, err
}

// advance makes the next generation durable before the fact that it counts. It
// overwrites one block in its place, which needs no room on a full disk.
func (l *Ledger) advance() error {
	now, err := l.Generation()
	if err != nil {
		return err
	}
	err = l.step("generation", "write", func() error {
		f, err := os.OpenFile(l.path(generationFile), os.O_WRONLY|os.O_CREATE, fileMode)
		if err != nil {
			return err
		}
		content := fmt.Appendf(nil, `{"version":%d,"generation":%d}`, generationVersion, now+1)
		_, err = f.WriteAt(fmt.Appendf(nil, "%-*s\n", generationSize-1, content), 0)
		err = errors.Join(err, unix.Fdatasync(int(f.Fd())), f.Close())
		if err == nil && now == 0 {
			err = syncDir(l.dir)
		}
		return err
	})
	return unwritable(err, "its generation can't be written")
}
