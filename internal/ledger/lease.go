package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// LeaseFile is the name of the file on which the Salt job process holds the
// lease, with an exclusive flock. Its content names the request.
const LeaseFile = "lease"

// Lease is what a probe found. A free lease is held shared by the probe until
// Release, so that nobody can take it while something is concluded from that.
type Lease struct {
	Held   bool
	Holder string // the request named; "" if the file names none (yet)
	file   *os.File
}

// HeldFor says whether the lease is held for a request. A holder that has not
// written its name yet counts, since it may be this one.
func (p *Lease) HeldFor(request string) bool {
	return p.Held && (p.Holder == request || p.Holder == "")
}

// Release ends the probe.
func (p *Lease) Release() {
	if p.file != nil {
		_ = p.file.Close()
		p.file = nil
	}
}

// ProbeLease takes the lease shared, without waiting. No pid is trusted and
// nothing is cleaned up: the kernel frees the lease of a process that is gone.
func (l *Ledger) ProbeLease() (*Lease, error) {
	f, err := os.OpenFile(l.path(LeaseFile), os.O_RDONLY|os.O_CREATE, fileMode)
	if err != nil {
		return nil, unwritable(err, "the lease can't be opened")
	}
	p := &Lease{file: f}
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	switch {
	case err == nil:
		return p, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		p.Held = true
		raw, err := io.ReadAll(io.LimitReader(f, maxFact))
		p.Release()
		if err != nil {
			return nil, unwritable(err, "the lease can't be read")
		}
		var holder struct {
			Version int    `json:"version"`
			Request string `json:"request"`
		}
		if json.Unmarshal(raw, &holder) == nil && holder.Version == 1 {
			p.Holder = holder.Request
		}
		return p, nil
	default:
		p.Release()
		return nil, unwritable(err, "the lease can't be probed")
	}
}

// leaseSize is what the name of a holder takes; the Salt process pads it, and
// writes it over what is there.
const leaseSize = 256

// reserveLease makes room for the name of a holder. It never touches a name.
func (l *Ledger) reserveLease() error {
	f, err := os.OpenFile(l.path(LeaseFile), os.O_WRONLY|os.O_CREATE, fileMode)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() < leaseSize {
		if _, err = f.WriteAt(bytes.Repeat([]byte{' '}, leaseSize-int(info.Size())), info.Size()); err == nil {
			err = f.Sync()
		}
	}
	return errors.Join(err, f.Close())
}

// LeasePath is where the lease is.
func (l *Ledger) LeasePath() string { return l.path(LeaseFile) }
