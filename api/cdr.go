package api

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"tandem/calls"
	"tandem/models"
)

// CDRPath is where nodes post what they know of a channel that has ended. It is no part of the customers' API.
const CDRPath = "/internal/cdr"

// admitCDR allows a larger body where a node reports: FreeSWITCH sends every variable of the channel. Anybody else's limit
// stays.
func admitCDR(header *fasthttp.RequestHeader) fasthttp.RequestConfig {
	path, _, _ := strings.Cut(string(header.RequestURI()), "?")
	if path == CDRPath && strings.HasPrefix(string(header.Peek(fiber.HeaderAuthorization)), basicScheme) {
		return fasthttp.RequestConfig{MaxRequestBodySize: calls.CDRLimit}
	}
	return fasthttp.RequestConfig{}
}

const basicScheme = "Basic "

// takeCDR stores what a node reports of a channel, named by the query's uuid. It answers 204 when the report is durable, and also
// when it came before; the node writes what is answered otherwise to its disk (mod_json_cdr.c, process_cdr), from where its
// controller collects it.
func (s *Server) takeCDR(c *fiber.Ctx) error {
	name, token, ok := basicAuth(c.Get(fiber.HeaderAuthorization))
	if !ok {
		return refuseNode(c)
	}
	node, err := s.store.AuthenticateNode(c.UserContext(), name, token)
	if errors.Is(err, models.ErrNotFound) {
		return refuseNode(c)
	}
	if err != nil {
		return err
	}
	channel := c.Query("uuid")
	// Raw: what says that it is compressed must not be unpacked beyond the limit.
	cdr, err := calls.ParseCDR(channel, c.BodyRaw())
	if err != nil {
		s.logger.Warn("cdr refused", "node_id", node, "channel", cutText(channel), "error", err)
		return &Error{Code: codeInvalidRequest, Message: err.Error()}
	}
	cdr.NodeID = node
	if err := s.store.SaveCDRs(c.UserContext(), []models.CDR{cdr}); err != nil {
		return err
	}
	return c.SendStatus(http.StatusNoContent)
}

// refuseNode answers a request that no node has proved to be its own.
func refuseNode(c *fiber.Ctx) error {
	c.Set(fiber.HeaderWWWAuthenticate, `Basic realm="tandem"`)
	return &Error{Code: codeUnauthorized, Message: "the request needs a node's name and its CDR token by HTTP basic authentication"}
}

// basicAuth reads the credentials of RFC 7617.
func basicAuth(header string) (name, password string, ok bool) {
	encoded, ok := strings.CutPrefix(header, basicScheme)
	if !ok {
		return "", "", false
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", "", false
	}
	return strings.Cut(string(raw), ":")
}

// cutText shortens text of somebody else's for the log.
func cutText(text string) string { return text[:min(len(text), 80)] }
