#include "net/token.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "support/signed_token.h"
#include "support/tree.h"

namespace zeus::net {
namespace {

using std::string_literals::operator""s;
using test::signed_token;

constexpr const char* kKey = "integration-test-signing-key!!!!";
constexpr std::int64_t kNow = 1'800'000'000;

// Computed by Python's hmac, and taken by upstream's tests.
constexpr const char* kTestUser =
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9."
    "eyJzdWIiOiJ0ZXN0dXNlciIsInNjb3BlcyI6WyJncHUtcmVhZCJdLCJleHAiOjk5OTk5OTk5OTl9."
    "uiJPBfP5-zQ6ZaSCvx8KPbb7BE980zC_WfWX4vyCOEU";
constexpr const char* kBob =
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9."
    "eyJzdWIiOiJib2IiLCJzY29wZXMiOlsiZ3B1LWNvbnRyb2wiXX0."
    "Uq4pXoWc1LafweJ69g1uPPJ7jctcdfI-iYKzFeQIwbA";

struct Token : testing::Test {
  SigningKey key(const std::string& bytes = kKey, bool strict = false) const {
    tree.write("key", bytes);
    return SigningKey::load(path(), strict).value();
  }
  std::filesystem::path path() const { return tree.root() / "key"; }
  /// Why a token of this payload, properly signed, is refused; "" if it is not.
  std::string refusal(const std::string& payload,
                      const std::string& header = R"({"alg":"HS256","typ":"JWT"})") const {
    return refusal_of(signed_token(header, payload, kKey));
  }
  std::string refusal_of(const std::string& token, std::int64_t now = kNow) const {
    const auto claims = verify(key(), token, now);
    if (claims) return "";
    EXPECT_EQ(claims.error().code, Errc::denied);
    return claims.error().detail;
  }
  mutable test::Tree tree;
};

TEST_F(Token, IsIssuedAsUpstreamIssuesIt) {
  EXPECT_EQ(issue(key(), {"testuser", {Group::gpu_read}, 9'999'999'999}), kTestUser);
  EXPECT_EQ(issue(key(), {"bob", {Group::gpu_control}}), kBob);
}

TEST_F(Token, OfUpstreamIsRead) {
  const auto user = verify(key(), kTestUser, kNow);
  ASSERT_TRUE(user);
  EXPECT_EQ(user->subject, "testuser");
  EXPECT_EQ(user->scopes, std::vector{Group::gpu_read});
  EXPECT_EQ(user->expires, 9'999'999'999);
  const auto bob = verify(key(), kBob, kNow);
  ASSERT_TRUE(bob);
  EXPECT_EQ(bob->subject, "bob");
  EXPECT_EQ(bob->scopes, std::vector{Group::gpu_control});
  EXPECT_EQ(bob->expires, std::nullopt);
}

TEST_F(Token, ComesBackAsItWasIssued) {
  for (const std::string subject : {"", "a\"b\\c", "Zoë", "x\ny"}) {
    const Claims claims{subject, {kGroups.begin(), kGroups.end()}, kNow + 1};
    const auto back = verify(key(), issue(key(), claims), kNow);
    ASSERT_TRUE(back) << subject;
    EXPECT_EQ(back->subject, subject);
    EXPECT_EQ(back->scopes, claims.scopes);
    EXPECT_EQ(back->expires, claims.expires);
  }
}

TEST_F(Token, IsRefusedByAnotherKey) {
  for (const std::string other :
       {"integration-test-signing-key!!!?", "integration-test-signing-key!!!!\n",
        "integration-test-signing-key!!!", "another one"}) {
    const auto claims = verify(key(other), kBob, kNow);
    ASSERT_FALSE(claims);
    EXPECT_EQ(claims.error().detail, kNotValid);
  }
}

TEST_F(Token, IsSignedWithEveryByteOfTheFile) {
  const std::string bytes = "\0key with a NUL\0 and a line end\n"s;
  const std::string token = issue(key(bytes), {"bob", {}});
  EXPECT_TRUE(verify(key(bytes), token, kNow));
  EXPECT_FALSE(verify(key(bytes.substr(0, bytes.size() - 1)), token, kNow));
  EXPECT_FALSE(verify(key(bytes.substr(0, 16)), token, kNow));
}

TEST_F(Token, IsRefusedWithEveryAlgorithmButOne) {
  const std::string payload = R"({"sub":"bob","scopes":["gpu-control"]})";
  ASSERT_EQ(refusal(payload), "");
  for (const char* algorithm :
       {R"("none")", R"("None")", R"("NONE")", R"("hs256")", R"("HS384")", R"("HS512")",
        R"("RS256")", R"("ES256")", R"("")", "null", "1", R"(["HS256"])", R"("HS256 ")"}) {
    const std::string header = R"({"typ":"JWT","alg":)"s + algorithm + "}";
    EXPECT_EQ(refusal(payload, header), kNotValid) << algorithm;
    // And with no signature at all, as "none" has it.
    std::string bare = signed_token(header, payload, kKey);
    bare.resize(bare.rfind('.') + 1);
    EXPECT_EQ(refusal_of(bare), kNotValid) << algorithm;
  }
  EXPECT_EQ(refusal(payload, R"({"typ":"JWT"})"), kNotValid);
  EXPECT_EQ(refusal(payload, R"({"alg":"HS256","crit":["b64"],"b64":false})"), kNotValid);
  EXPECT_EQ(refusal(payload, "[]"), kNotValid);
  EXPECT_EQ(refusal(payload, ""), kNotValid);
}

TEST_F(Token, IsRefusedThoughAnotherAlgorithmSignedItWell) {
  for (const auto& [name, hash] :
       {std::pair("HS256", EVP_sha256()), {"HS384", EVP_sha384()}, {"HS512", EVP_sha512()}}) {
    const std::string text = test::base64url(R"({"alg":")"s + name + "\"}") + '.' +
                             test::base64url(R"({"sub":"bob","scopes":[]})");
    const std::string why = refusal_of(text + '.' + test::hs256(text, kKey, hash));
    EXPECT_EQ(why, hash == EVP_sha256() ? "" : kNotValid) << name;
  }
}

TEST_F(Token, OfAnotherIssuerIsReadWhateverItsHeaderAdds) {
  const std::string payload = R"({"sub":"bob","scopes":[]})";
  EXPECT_EQ(refusal(payload, R"({"alg":"HS256"})"), "");
  EXPECT_EQ(refusal(payload, R"({ "alg" : "HS256", "typ":"jwt", "kid":"1" })"), "");
}

TEST_F(Token, IsRefusedIfAnyBitOfItChanges) {
  const std::string good = kTestUser;
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = bad[i] == 'A' ? 'B' : 'A';
    EXPECT_NE(refusal_of(bad), "") << i;
    EXPECT_NE(refusal_of(good.substr(0, i)), "") << i;
  }
  for (const std::string& bad :
       {good + "A", good + ".", good + ".x", good + "=", good + "\n", good + "\0"s, " " + good,
        "Bearer " + good, ""s, "."s, ".."s, "..."s, "\0"s, "garbage"s}) {
    EXPECT_EQ(refusal_of(bad), kNotValid) << bad;
  }
}

TEST_F(Token, IsRefusedUnlessItSaysWhoAndWhat) {
  EXPECT_EQ(refusal(R"({"scopes":["gpu-read"],"sub":"bob"})"), "");
  for (const char* payload : {"{}",
                              "[]",
                              "null",
                              "",
                              "{",
                              R"("bob")",
                              R"({"sub":"bob"})",
                              R"({"scopes":[]})",
                              R"({"sub":null,"scopes":[]})",
                              R"({"sub":1,"scopes":[]})",
                              R"({"sub":["bob"],"scopes":[]})",
                              R"({"sub":"bob","scopes":null})",
                              R"({"sub":"bob","scopes":"gpu-read"})",
                              R"({"sub":"bob","scopes":{}})",
                              R"({"sub":"bob","scopes":["gpu-read","root"]})",
                              R"({"sub":"bob","scopes":["GPU-READ"]})",
                              R"({"sub":"bob","scopes":[""]})",
                              R"({"sub":"bob","scopes":[1]})",
                              R"({"sub":"bob","scopes":[null]})",
                              R"({"sub":"\ud800","scopes":[]})",
                              R"({"sub":"a\u0000b","scopes":[]})",
                              R"({"sub":"bob","scopes":[]} )"
                              "x"}) {
    EXPECT_EQ(refusal(payload), kNotValid) << payload;
  }
}

TEST_F(Token, MayClaimWhatWeDoNotKnowButNoAudience) {
  EXPECT_EQ(refusal(R"({"sub":"bob","scopes":[],"nbf":9999999999,"iss":"x","iat":1,"jti":{}})"),
            "");
  for (const char* aud : {R"("zeusd")", "[]", "null"}) {
    EXPECT_EQ(refusal(R"({"sub":"bob","scopes":[],"aud":)"s + aud + "}"), kNotValid) << aud;
  }
}

TEST_F(Token, ExpiresAMinuteAfterItsTime) {
  const std::string token = issue(key(), {"bob", {}, kNow});
  EXPECT_EQ(refusal_of(token, kNow + 60), "");
  EXPECT_EQ(refusal_of(token, kNow + 61), kExpired);
  EXPECT_EQ(refusal_of(issue(key(), {"bob", {}, 1'000'000'000})), kExpired);
  // Whoever cannot sign is not told that it would have expired.
  EXPECT_EQ(verify(key("another key"), token, kNow + 61).error().detail, kNotValid);
}

TEST_F(Token, ExpiresAtAWholeSecondOrNever) {
  const auto with = [&](const char* exp) {
    return refusal(R"({"sub":"bob","scopes":[],"exp":)"s + exp + "}");
  };
  EXPECT_EQ(with("null"), "");
  EXPECT_EQ(with("9223372036854775807"), "");
  EXPECT_EQ(with("0"), kExpired);
  for (const char* exp : {"9999999999.5", "9999999999.0", "1e10", "-1", "9223372036854775808",
                          "1e400", R"("9999999999")", "true", "[9999999999]"}) {
    EXPECT_EQ(with(exp), kNotValid) << exp;
  }
}

TEST_F(Token, IsRefusedBeyond8KiB) {
  const auto of = [&](std::size_t n) { return issue(key(), {std::string(n, 'x'), {}}); };
  EXPECT_EQ(refusal_of(of(6000)), "");
  ASSERT_GT(of(6200).size(), 8192u);
  EXPECT_EQ(refusal_of(of(6200)), kNotValid);
  EXPECT_EQ(refusal_of(std::string(100'000, '.')), kNotValid);
}

TEST_F(Token, IsTakenApartHoweverDeepItIs) {
  EXPECT_EQ(refusal(std::string(3000, '[') + std::string(3000, ']')), kNotValid);
  EXPECT_EQ(refusal(R"({"sub":"bob","scopes":[],"x":)" + std::string(1000, '[') +
                    std::string(1000, ']') + "}"),
            "");
}

struct Key : Token {
  std::string refusal_of_file(unsigned mode, bool strict = true) const {
    if (::chmod(path().c_str(), mode) != 0) return "chmod failed";
    const auto loaded = SigningKey::load(path(), strict);
    return loaded ? "" : loaded.error().detail;
  }
};

TEST_F(Key, IsTheBytesOfItsFile) { EXPECT_EQ(key("secret\n\0"s).bytes(), "secret\n\0"s); }

TEST_F(Key, IsNotReadWhereOthersCanReadIt) {
  tree.write("key", kKey);
  for (const unsigned mode : {0600U, 0400U, 0640U, 0440U}) EXPECT_EQ(refusal_of_file(mode), "");
  for (const unsigned mode : {0644U, 0604U, 0620U, 0660U, 0602U, 0601U}) {
    EXPECT_NE(refusal_of_file(mode), "") << mode;
    EXPECT_EQ(refusal_of_file(mode, false), "");
  }
  EXPECT_EQ(refusal_of_file(0644), "cannot use the signing key " + path().string() +
                                       ": its mode 0644 lets others read it or a group write it; "
                                       "chmod 0600 " +
                                       path().string());
}

TEST_F(Key, IsNotReadFromAFileOfAnother) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  tree.write("key", kKey);
  ASSERT_EQ(::chown(path().c_str(), 1234, 0), 0);
  EXPECT_NE(refusal_of_file(0600).find("belongs to user 1234"), std::string::npos);
}

TEST_F(Key, HasSixteenBytesUnlessToldOtherwise) {
  tree.write("key", "");
  EXPECT_NE(refusal_of_file(0600).find("it is empty"), std::string::npos);
  EXPECT_NE(refusal_of_file(0600, false).find("it is empty"), std::string::npos);
  tree.write("key", "fifteen bytes..");
  EXPECT_NE(refusal_of_file(0600).find("15 bytes can be guessed"), std::string::npos);
  EXPECT_EQ(refusal_of_file(0600, false), "");
  tree.write("key", "fifteen bytes..\n");
  EXPECT_EQ(refusal_of_file(0600), "");
}

TEST_F(Key, HasAnEnd) {
  tree.write("key", std::string(65'537, 'x'));
  EXPECT_NE(refusal_of_file(0600).find("longer than 65536 bytes"), std::string::npos);
  EXPECT_NE(refusal_of_file(0600, false).find("longer than 65536 bytes"), std::string::npos);
}

TEST_F(Key, ThatIsNotThereIsSaid) {
  EXPECT_NE(SigningKey::load(path(), true).error().detail.find(path().string()), std::string::npos);
  EXPECT_NE(SigningKey::load(path(), false).error().detail.find(path().string()),
            std::string::npos);
}

TEST(Expiry, IsNeverOrADurationFromNow) {
  const auto at = [](const char* text) { return parse_expiry(text, 1000).value(); };
  EXPECT_EQ(at("never"), std::nullopt);
  EXPECT_EQ(at(" 0 "), std::nullopt);
  EXPECT_EQ(at("1s"), 1001);
  EXPECT_EQ(at("1h"), 1000 + 3600);
  EXPECT_EQ(at("7d"), 1000 + 7 * 86'400);
  EXPECT_EQ(at("30d"), 1000 + 30 * 86'400);
  EXPECT_EQ(at("2weeks"), 1000 + 14 * 86'400);
  EXPECT_EQ(at("1h 30m"), 1000 + 5400);
  EXPECT_EQ(at("1h30min 5 secs"), 1000 + 5405);
  EXPECT_EQ(at("1year"), 1000 + 31'557'600);
}

TEST(Expiry, TellsAMonthFromAMinute) {
  EXPECT_EQ(*parse_expiry("1M", 0), 2'630'016);
  EXPECT_EQ(*parse_expiry("1m", 0), 60);
}

TEST(Expiry, IsRefusedWhereItIsNone) {
  for (const char* text : {"",
                           " ",
                           "1",
                           "00",
                           "h",
                           "1x",
                           "1h 30",
                           "-1h",
                           "+1h",
                           "1.5h",
                           "1h,30m",
                           "0s",
                           "0h 0m",
                           "1ms",
                           "NEVER!",
                           "99999999999999999999s",
                           "9223372036854775807s",
                           "999999999999999y",
                           "9223372036854775807s 1s",
                           "1 s s"}) {
    const auto at = parse_expiry(text, 1000);
    ASSERT_FALSE(at) << text;
    EXPECT_NE(at.error().detail.find("no time to expire after"), std::string::npos);
  }
}

}  // namespace
}  // namespace zeus::net
