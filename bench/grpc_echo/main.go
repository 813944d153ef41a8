// grpc_echo: a grpc-go server that answers any call with a constant message of a given size: the peer of bench/grpc_trivial.py.
// Arguments: address, bytes of the answer.
package main

import (
	"log"
	"net"
	"os"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

type raw []byte

// codec passes bytes through: what is measured is the transport.
type codec struct{}

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*raw))}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*raw) = data.Materialize()
	return nil
}

func (codec) Name() string { return "proto" }

func main() {
	size, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	answer := raw(make([]byte, size))
	encoding.RegisterCodecV2(codec{})
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		var request raw
		if err := s.RecvMsg(&request); err != nil {
			return err
		}
		return s.SendMsg(&answer)
	}))
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.Serve(listener))
}
