package lab

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are the lab's TCP ports, all on 127.0.0.1.
type Ports struct {
	Publish int `json:"publish"`
	Ret     int `json:"ret"`
	API     int `json:"api"`
	Masterd int `json:"masterd"`
}

// choosePorts takes four free neighbours below the ephemeral range, from which outgoing connections
// would otherwise pick one between the choice and its use. The block is random, so two labs that
// start at the same moment, or one whose master is stopped for a while, don't meet in practice.
func choosePorts() (Ports, error) {
	const first, last, block = 20000, 32000, 4
	for range 200 {
		base := first + block*rand.IntN((last-first)/block)
		if allFree(base, block) {
			return Ports{Publish: base, Ret: base + 1, API: base + 2, Masterd: base + 3}, nil
		}
	}
	return Ports{}, errors.New("no four free ports in a row between 20000 and 32000 on 127.0.0.1")
}

func allFree(base, n int) bool {
	for port := base; port < base+n; port++ {
		l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}
