package saltreq

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

const maxKey = 4096

// readKey reads the login key that the master made for its publisher_acl user.
// It is read anew for every request, since each start of the master may remake
// it, and refused unless it is a regular file of our own user that nobody else
// can open: anything else is either half written (the master creates the file
// as root and gives it away last) or not the master's work.
func readKey(path string, uid int) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("the key isn't a regular file")
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", errors.New("the key file is open to group or others")
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(stat.Uid) != uid {
		return "", errors.New("the key file isn't owned by masterd's user")
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxKey+1))
	if err != nil {
		return "", err
	}
	if len(raw) == 0 || len(raw) > maxKey {
		return "", errors.New("the key file has no key's size")
	}
	for _, b := range raw {
		if b <= ' ' || b > '~' {
			return "", errors.New("the key file holds something that isn't a key")
		}
	}
	return string(raw), nil
}

// keyProblem names the usual cause without the content.
func keyProblem(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "the master made no key for masterd's user: is it in publisher_acl, and does that system user exist?"
	case errors.Is(err, fs.ErrPermission):
		return "masterd's user can't read its key: start the master as root, with its option user, so that it can give the file away"
	}
	return "see the log"
}
