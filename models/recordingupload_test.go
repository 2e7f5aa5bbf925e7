package models_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestRecordingUpload(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		node, other := modelstest.Node(t, s), modelstest.Node(t, s)
		call := modelstest.Call(t, s, modelstest.Application(t, s, modelstest.Customer(t, s, 0)))
		recording := &models.Recording{
			CallID: call.ID, CustomerID: call.CustomerID, Path: "/node/rec.wav", Format: "wav", Status: models.RecordingProcessing, Remote: true, Seconds: 2,
		}
		require.NoError(t, s.SaveRecording(ctx, recording))
		due := func() []models.RecordingUpload {
			t.Helper()
			rows, err := s.DueUploads(ctx, node.ID, 10)
			require.NoError(t, err)
			return rows
		}

		require.NoError(t, s.AwaitRecording(ctx, recording.ID, node.ID, recording.Path, s.Now()))
		require.NoError(t, s.AwaitRecording(ctx, recording.ID, node.ID, "/another", s.Now()), "the first word counts")
		require.Len(t, due(), 1)
		require.Equal(t, "/node/rec.wav", due()[0].Path)
		beside := *recording
		beside.ID = ""
		require.NoError(t, s.SaveRecording(ctx, &beside))
		require.NoError(t, s.AwaitRecording(ctx, beside.ID, node.ID, recording.Path, s.Now()))
		require.Len(t, due(), 2, "none has a token yet")
		require.NoError(t, s.EndUpload(ctx, beside.ID))
		counts, err := s.PendingUploads(ctx)
		require.NoError(t, err)
		require.Equal(t, map[string]int{node.ID: 1}, counts)

		first, err := s.BeginUpload(ctx, recording.ID, s.Now().Add(time.Hour))
		require.NoError(t, err)
		require.Len(t, first, 64)
		require.Empty(t, due(), "until the attempt has had its time")
		second, err := s.BeginUpload(ctx, recording.ID, s.Now().Add(time.Hour))
		require.NoError(t, err)
		require.NotEqual(t, first, second)
		for name, refused := range map[string]struct{ node, token string }{
			"used up by the second": {node.ID, first}, "another node's": {other.ID, second}, "nobody's": {node.ID, "x"}, "none": {node.ID, ""},
		} {
			_, err = s.AdmitUpload(ctx, refused.node, refused.token)
			require.ErrorIs(t, err, models.ErrNotFound, name)
		}
		upload, err := s.AdmitUpload(ctx, node.ID, second)
		require.NoError(t, err)
		require.Equal(t, []any{recording.ID, 2}, []any{upload.RecordingID, upload.Attempts})

		require.NoError(t, s.RefuseUpload(ctx, recording.ID, "no WAV file", false))
		require.NoError(t, s.RefuseUpload(ctx, recording.ID, "too large", true))
		upload, err = s.Upload(ctx, recording.ID)
		require.NoError(t, err)
		require.Equal(t, []any{2, true, "too large"}, []any{upload.Refusals, upload.Hopeless, upload.Error})
		_, err = s.Upload(ctx, "rec_none")
		require.ErrorIs(t, err, models.ErrNotFound)
		require.NoError(t, s.PutOffUpload(ctx, recording.ID, "status 500", s.Now()))
		require.Equal(t, "status 500", due()[0].Error)
		require.ErrorIs(t, s.FinishUpload(ctx, recording.ID, first), models.ErrStale)
		require.NoError(t, s.FinishUpload(ctx, recording.ID, second))
		require.ErrorIs(t, s.FinishUpload(ctx, recording.ID, second), models.ErrStale, "a token is used once")
		_, err = s.AdmitUpload(ctx, node.ID, second)
		require.ErrorIs(t, err, models.ErrNotFound)
		_, err = s.BeginUpload(ctx, recording.ID, s.Now())
		require.ErrorIs(t, err, models.ErrStale)
		require.Len(t, due(), 1, "the node's file is to be deleted")
		require.NotNil(t, due()[0].StoredAt)
		counts, err = s.PendingUploads(ctx)
		require.NoError(t, err)
		require.Empty(t, counts)

		require.NoError(t, s.CountCleanup(ctx, recording.ID, s.Now()))
		require.Equal(t, 1, due()[0].Attempts)
		require.NoError(t, s.EndUpload(ctx, recording.ID))
		require.Empty(t, due())

		// A token admits for as long as it was made for.
		require.NoError(t, s.AwaitRecording(ctx, recording.ID, node.ID, recording.Path, s.Now()))
		late, err := s.BeginUpload(ctx, recording.ID, s.Now().Add(-time.Second))
		require.NoError(t, err)
		_, err = s.AdmitUpload(ctx, node.ID, late)
		require.ErrorIs(t, err, models.ErrNotFound)

		recording.Status, recording.Path, recording.Size = models.RecordingAvailable, "/ours/rec.wav", 4711
		require.NoError(t, s.SaveRecording(ctx, recording))
		read, err := s.RecordingByID(ctx, recording.ID)
		require.NoError(t, err)
		require.Equal(t, recording, read)
	})
}

func TestNodeDelivery(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		node := modelstest.Node(t, s)
		require.Equal(t, models.DeliveryFiles, node.Delivery)
		require.False(t, node.Remote())
		node.Delivery = models.DeliveryXMLCurl
		require.NoError(t, s.UpdateNode(ctx, node))
		read, err := s.NodeByName(ctx, node.Name)
		require.NoError(t, err)
		require.True(t, read.Remote())
		node.Delivery = "carrier pigeon"
		require.Error(t, s.UpdateNode(ctx, node))
	})
}

// TestRecordingsStayWhereTheyAre: on PostgreSQL the table, which may be large, is not written anew; and what was on its way is lost on the way back.
func TestRecordingsStayWhereTheyAre(t *testing.T) {
	t.Parallel()
	first(t, func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		place := func() (file string) {
			t.Helper()
			if s.Dialect() == models.DialectPostgres {
				require.NoError(t, models.Reader(s).Raw("SELECT 'recordings'::regclass::oid || ' ' || pg_relation_filenode('recordings')").Row().Scan(&file))
			}
			return file
		}
		statuses := func() (all []string) {
			t.Helper()
			require.NoError(t, models.Reader(s).Raw("SELECT id || ' ' || status FROM recordings ORDER BY id").Scan(&all).Error)
			return all
		}
		require.NoError(t, models.MigrateTo(ctx, s, 19))
		before, schema := place(), shape(t, s)
		require.NoError(t, models.MigrateTo(ctx, s, 20))
		require.Equal(t, before, place())
		require.NoError(t, models.Write(ctx, s, "UPDATE recordings SET status = 'processing' WHERE id = 'rec_2'"))
		require.Error(t, models.Write(ctx, s, "UPDATE recordings SET status = 'lost' WHERE id = 'rec_2'"))
		require.NoError(t, models.MigrateTo(ctx, s, 19))
		require.Equal(t, before, place())
		require.Equal(t, []string{"rec_1 available", "rec_2 failed"}, statuses())
		require.Error(t, models.Write(ctx, s, "UPDATE recordings SET status = 'processing' WHERE id = 'rec_2'"))
		if s.Dialect() == models.DialectSQLite { // PostgreSQL shows that a check was not made of the rows that were there
			require.Equal(t, schema, shape(t, s))
		}
		require.NoError(t, s.Migrate(ctx))
	})
}

// TestRecordingComesAsItIsGivenUp: a file that comes in the moment in which nobody waits for it any more is there, or it is not; never both.
func TestRecordingComesAsItIsGivenUp(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		ctx := t.Context()
		node := modelstest.Node(t, s)
		call := modelstest.Call(t, s, modelstest.Application(t, s, modelstest.Customer(t, s, 0)))
		recording := &models.Recording{
			CallID: call.ID, CustomerID: call.CustomerID, Path: "/node/rec.wav", Format: "wav", Status: models.RecordingProcessing, Remote: true,
		}
		require.NoError(t, s.SaveRecording(ctx, recording))
		require.NoError(t, s.AwaitRecording(ctx, recording.ID, node.ID, recording.Path, s.Now()))
		token, err := s.BeginUpload(ctx, recording.ID, s.Now().Add(time.Hour))
		require.NoError(t, err)
		givenUp := make(chan error, 1)
		require.NoError(t, s.InTx(ctx, func(tx *models.Store) error {
			if err := tx.FinishUpload(ctx, recording.ID, token); err != nil {
				return err
			}
			go func() {
				_, err := other.FailRecording(ctx, recording.ID)
				givenUp <- err
			}()
			come := *recording
			come.Status, come.Path = models.RecordingAvailable, "/ours/rec.wav"
			return tx.SaveRecording(ctx, &come)
		}))
		require.ErrorIs(t, <-givenUp, models.ErrStale)
		stored, err := s.RecordingByID(ctx, recording.ID)
		require.NoError(t, err)
		require.Equal(t, []string{models.RecordingAvailable, "/ours/rec.wav"}, []string{stored.Status, stored.Path})
		upload, err := s.Upload(ctx, recording.ID)
		require.NoError(t, err)
		require.NotNil(t, upload.StoredAt, "the node's file is still to be deleted")
		lost, err := s.LostRecordings(ctx, 10)
		require.NoError(t, err)
		require.Empty(t, lost)
	})
}
