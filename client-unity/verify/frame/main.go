// Command frame writes the point-cloud frame that the Self-test sample decodes: 160×144 pixels of a synthetic scene,
// layout A.
//
//	go run ./client-unity/verify/frame client-unity/Packages/dev.holocast.client/Samples~/SelfTest/Frame.bytes
package main

import (
	"log"
	"os"

	"holocast/internal/pointcloud"
	"holocast/internal/pointcloud/frametest"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: frame FILE")
	}
	e, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	cloud := frametest.SyntheticCloud(160, 144, 1)
	object, err := e.Encode(nil, pointcloud.Header{}, cloud.Frame(pointcloud.LayoutGrid), 0)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(os.Args[1], object, 0o644); err != nil {
		log.Fatal(err)
	}
}
