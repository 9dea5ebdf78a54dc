// SHA-256 against the examples of FIPS 180-4 and, at the edges of a block, Python's hashlib.
#include "base/hash.h"

#include <gtest/gtest.h>

namespace hadal {
namespace {

TEST(Sha256, ExamplesOfTheStandard) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, EdgesOfABlock) {
  EXPECT_EQ(sha256_hex(std::string(55, '\xef')),
            "627bc2cf7455770eb063aeedb3a5db1b2ad5917d5c0c2d8a378e6c3a99830300");
  EXPECT_EQ(sha256_hex(std::string(56, '\xef')),
            "8b0a08d498e781399c695d70febc68bcec7ab3ceb792d922aee1cc6f84669c7d");
  EXPECT_EQ(sha256_hex(std::string(63, '\xef')),
            "6dca9c832512e8b6c06c363e2c55b6fb78a9f2ee1ab2ad5b6f57eae4e85a2527");
  EXPECT_EQ(sha256_hex(std::string(64, '\xef')),
            "bcc682bf21a9a12a4357a35453d9d87391f3418ca3c2d69f68567c93d3e1d142");
  EXPECT_EQ(sha256_hex(std::string(65, '\xef')),
            "cbb699ed0b6be54f0a3c903cc5b7ae82125dcc32378f504ab4d8de489fe8dc4b");
  EXPECT_EQ(sha256_hex(std::string(119, '\xef')),
            "9f1aa9b1c825e035728d57a5eec134a722d4e441798d073fef7b23841ab3247e");
  EXPECT_EQ(sha256_hex(std::string(120, '\xef')),
            "809cc0cc256e21c8a2605874622f9f4ec5861aa6c8584abae31af1adc3381268");
  EXPECT_EQ(sha256_hex(std::string(128, '\xef')),
            "b0916491ef06a782bbbe695405529776bc16f2ea5d0d3d74ae0206328f10fbfe");
}

}  // namespace
}  // namespace hadal
