package saltreq

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The two states of /proc/net/tcp that are asked for.
const (
	stateEstablished = "01"
	stateListen      = "0A"
)

var (
	errNobody  = errors.New("nobody listens there")
	errForeign = errors.New("the socket at the other end doesn't belong to the Salt master")
	errUnseen  = errors.New("the socket at the other end isn't on this machine, or in another network namespace")
)

// owners are the uids that the other end of the request channel may have.
type owners map[int]bool

// socketRow is one row of /proc/net/tcp or tcp6. IPv4 in IPv6 is unmapped.
type socketRow struct {
	local, remote netip.AddrPort
	state         string
	uid           int
	inode         uint64
}

// checkListener says whether every listener that a connection to addr could
// reach is one of the owners'. It comes before the connection and is for a
// clear answer; checkPeer is what the key depends on.
func checkListener(procRoot string, addr netip.AddrPort, allowed owners) error {
	found := false
	err := eachSocket(procRoot, &found, func(r socketRow) error {
		if r.state != stateListen || r.local.Port() != addr.Port() {
			return nil
		}
		if at := r.local.Addr(); !at.IsUnspecified() && at != addr.Addr() {
			return nil
		}
		found = true
		if !allowed[r.uid] {
			return fmt.Errorf("%w: uid %d", errForeign, r.uid)
		}
		return nil
	})
	if err == nil && !found {
		return errNobody
	}
	return err
}

// checkPeer says whether the socket that accepted our connection (its local
// address is our remote one) is one of the owners'. To be called after the
// peer has sent something, so that it was accepted: before that the kernel
// shows uid 0 for it, and inode 0.
func checkPeer(procRoot string, ours, theirs netip.AddrPort, allowed owners) error {
	found := false
	err := eachSocket(procRoot, &found, func(r socketRow) error {
		if r.local != theirs || r.remote != ours {
			return nil
		}
		found = true
		if r.state != stateEstablished || r.inode == 0 {
			return fmt.Errorf("%w: not accepted, or closing", errUnseen)
		}
		if !allowed[r.uid] {
			return fmt.Errorf("%w: uid %d", errForeign, r.uid)
		}
		return nil
	})
	if err == nil && !found {
		return errUnseen
	}
	return err
}

// eachSocket walks the TCP sockets of our network namespace. A file costs the
// kernel some milliseconds, so the second is read only if the first had not
// what is looked for: two sockets can't hold one address in both.
func eachSocket(procRoot string, found *bool, visit func(socketRow) error) error {
	for _, name := range []string{"tcp", "tcp6"} {
		if *found {
			return nil
		}
		f, err := os.Open(filepath.Join(procRoot, "net", name))
		if errors.Is(err, fs.ErrNotExist) && name == "tcp6" {
			continue // a kernel without IPv6
		}
		if err != nil {
			return err
		}
		err = eachRow(f, visit)
		_ = f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func eachRow(r io.Reader, visit func(socketRow) error) error {
	lines := bufio.NewScanner(r)
	lines.Scan() // the heading
	for lines.Scan() {
		row, err := parseRow(lines.Text())
		if err != nil {
			return err
		}
		if err := visit(row); err != nil {
			return err
		}
	}
	return lines.Err()
}

// parseRow reads: sl local remote st tx:rx tr:when retrnsmt uid timeout inode …
func parseRow(line string) (socketRow, error) {
	f := strings.Fields(line)
	if len(f) < 10 {
		return socketRow{}, errors.New("a row of /proc/net/tcp is too short")
	}
	local, err := parseEndpoint(f[1])
	if err != nil {
		return socketRow{}, err
	}
	remote, err := parseEndpoint(f[2])
	if err != nil {
		return socketRow{}, err
	}
	uid, err := strconv.Atoi(f[7])
	if err != nil {
		return socketRow{}, fmt.Errorf("uid in /proc/net/tcp: %w", err)
	}
	inode, err := strconv.ParseUint(f[9], 10, 64)
	if err != nil {
		return socketRow{}, fmt.Errorf("inode in /proc/net/tcp: %w", err)
	}
	return socketRow{local: local, remote: remote, state: f[3], uid: uid, inode: inode}, nil
}

// parseEndpoint reads an address as the kernel prints it: 32-bit words in the
// machine's own byte order, then the port.
func parseEndpoint(s string) (netip.AddrPort, error) {
	host, port, ok := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	if !ok || err != nil || (len(raw) != 4 && len(raw) != 16) {
		return netip.AddrPort{}, errors.New("an address in /proc/net/tcp can't be read")
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("port in /proc/net/tcp: %w", err)
	}
	addr, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), nil
}
