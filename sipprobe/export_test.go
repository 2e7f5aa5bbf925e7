package sipprobe

import (
	"github.com/emiago/sipgo/sip"
)

// packetReplies is what a packet is read as.
func packetReplies(packet []byte) []*Reply {
	message, err := parse(packet)
	if err != nil {
		return nil
	}
	return repliesOf(message)
}

// streamReplies is what a connection is read as that brings the bytes in two parts.
func streamReplies(data []byte) (replies []*Reply) {
	parser := sip.NewParser().NewSIPStream()
	defer parser.Close()
	for _, part := range [][]byte{data[:len(data)/2], data[len(data)/2:]} {
		_ = feed(parser, part, func(message sip.Message) { replies = append(replies, repliesOf(message)...) })
	}
	return replies
}

func repliesOf(message sip.Message) []*Reply {
	res, ok := message.(*sip.Response)
	if !ok {
		return nil
	}
	_ = answers(res, newRequest("OPTIONS", "sip:a", "sip:a", "sip:a"), "b")
	_, _ = challengeOf(res, "WWW-Authenticate")
	return []*Reply{replyOf(Place{}, res, 0)}
}
